package server

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

func (a api) release(t *testing.T, session string, r *cellv1.Release) cellv1.Reason {
	t.Helper()
	out, err := a.Release(t.Context(), &cellv1.ReleaseRequest{
		Session: session, Locks: []*cellv1.Release{r},
	})
	if err != nil {
		t.Fatalf("releasing %s: %v", r.Name, err)
	}
	return out.Outcomes[0]
}

func (a api) take(t *testing.T, session, name string, edit func(*cellv1.AcquireRequest)) *cellv1.AcquireResponse {
	t.Helper()
	r, err := a.acquire(t, session, name, edit)
	if err != nil || r.Token == 0 {
		t.Fatalf("P7: %s is not granted: %v, %v", name, r, err)
	}
	return r
}

func (a api) held(t *testing.T, session, name, complaint string) {
	t.Helper()
	if r, err := a.acquire(t, session, name, func(m *cellv1.AcquireRequest) { m.Request = "probe" }); reasonOf(err) != cellv1.Reason_REASON_HELD {
		t.Errorf("%s: %v, %v", complaint, r, err)
	}
}

func (a api) show(t *testing.T, name string) *cellv1.Lock {
	t.Helper()
	r, err := a.Inspect(t.Context(), &cellv1.InspectRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.Lock
}

// TestRequestsAreRepeated: a request is made many times at once, as by a client that got no answer. It has
// one hold, or one place.
func TestRequestsAreRepeated(t *testing.T) {
	a := dial(start(t))
	one, two := a.open(t, 30*time.Second), a.open(t, 30*time.Second)
	for i, c := range []struct {
		session string
		queue   bool
		hold    bool
	}{{one, false, true}, {two, true, false}} {
		var calls sync.WaitGroup
		answers := make(chan *cellv1.AcquireResponse, 32)
		for range cap(answers) {
			calls.Go(func() {
				r, err := a.acquire(t, c.session, "n", func(m *cellv1.AcquireRequest) { m.Request, m.Queue = "r", c.queue })
				if err != nil {
					t.Error(err)
					return
				}
				answers <- r
			})
		}
		calls.Wait()
		close(answers)
		first := int64(0)
		for r := range answers {
			if first == 0 {
				first = r.Revision
			}
			if (r.Token != 0) != c.hold || r.Revision != first {
				t.Errorf("case %d: P6: the same request has got %v, and something since revision %d", i, r, first)
			}
		}
	}
	if l := a.show(t, "n"); len(l.Holders) != 1 || len(l.Waiters) != 1 {
		t.Errorf("P6: one hold and one place are %v", l)
	}
}

// TestReleases: a release may be repeated, frees no later hold, and says what was there.
func TestReleases(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	first := a.take(t, s, "n", nil)
	if got := a.release(t, s, &cellv1.Release{Name: "n", Token: first.Token}); got != cellv1.Reason_REASON_UNSPECIFIED {
		t.Errorf("a release says %v", got)
	}
	second := a.take(t, s, "n", nil) // by the same request, which may be used again
	if second.Token <= first.Token {
		t.Errorf("P3: after token %d comes %d", first.Token, second.Token)
	}
	if got := a.release(t, s, &cellv1.Release{Name: "n", Token: first.Token}); got != cellv1.Reason_REASON_NOT_HELD {
		t.Errorf("P4: releasing the hold before says %v", got)
	}
	a.held(t, a.open(t, 30*time.Second), "n", "P4: releasing the hold before has freed the name")
	if got := a.release(t, s, &cellv1.Release{Name: "n"}); got != cellv1.Reason_REASON_UNSPECIFIED {
		t.Errorf("a withdrawal says %v", got)
	}
	if r, err := a.acquire(t, s, "n", nil); reasonOf(err) != cellv1.Reason_REASON_NOT_HELD {
		t.Errorf("P6: a request that was withdrawn has got %v, %v", r, err)
	}
	if got := a.release(t, s, &cellv1.Release{Name: "never"}); got != cellv1.Reason_REASON_NOT_HELD {
		t.Errorf("withdrawing a request that was never made says %v", got)
	}
	if r, err := a.acquire(t, s, "never", nil); reasonOf(err) != cellv1.Reason_REASON_NOT_HELD {
		t.Errorf("P6: a request that comes after its withdrawal has got %v, %v", r, err)
	}
	a.take(t, s, "n", func(m *cellv1.AcquireRequest) { m.Request = "another" })
	a.take(t, s, "other", nil) // a request for another name is another request, whatever its id
}

// TestKinds: a name is of one kind at a time.
func TestKinds(t *testing.T) {
	a := dial(start(t))
	one, two := a.open(t, 30*time.Second), a.open(t, 30*time.Second)
	slots := func(slots, permits int32) func(*cellv1.AcquireRequest) {
		return func(m *cellv1.AcquireRequest) {
			m.Mode, m.Slots, m.Permits = cellv1.Mode_MODE_SLOT, slots, permits
		}
	}
	a.take(t, one, "n", slots(3, 2))
	a.take(t, two, "n", slots(3, 1))
	for i, edit := range []func(*cellv1.AcquireRequest){
		nil, slots(4, 1), func(m *cellv1.AcquireRequest) { m.Queue = true },
		func(m *cellv1.AcquireRequest) { slots(2, 1)(m); m.Wait = durationpb.New(time.Minute) },
	} {
		r, err := a.acquire(t, two, "n", func(m *cellv1.AcquireRequest) {
			if edit != nil {
				edit(m)
			}
			m.Request = fmt.Sprint("other", i)
		})
		if reasonOf(err) != cellv1.Reason_REASON_MISMATCH {
			t.Errorf("P10: case %d of another kind has got %v, %v", i, r, err)
		}
	}
	if l := a.show(t, "n"); len(l.Holders) != 2 || len(l.Waiters) != 0 || l.Slots != 3 {
		t.Errorf("the semaphore is %v", l)
	}
	readers := func(m *cellv1.AcquireRequest) { m.Mode = cellv1.Mode_MODE_SHARED }
	a.take(t, one, "rw", readers)
	a.take(t, two, "rw", readers)
	a.held(t, two, "rw", "P1: a writer is let in beside readers")
}

// TestStolenSession: an id without its secret is worth nothing, and neither is a wrong secret.
func TestStolenSession(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	id, secret, _ := strings.Cut(s, ".")
	for text, want := range map[string]cellv1.Reason{
		id:                       cellv1.Reason_REASON_INVALID,
		id + ".":                 cellv1.Reason_REASON_INVALID,
		"." + secret:             cellv1.Reason_REASON_INVALID,
		id + "." + rand.Text():   cellv1.Reason_REASON_NOT_YOURS,
		id + "." + secret + "x":  cellv1.Reason_REASON_NOT_YOURS,
		newSessionID() + ".x":    cellv1.Reason_REASON_SESSION_OVER,
		"1." + secret:            cellv1.Reason_REASON_INVALID,
		strings.Repeat("a", 999): cellv1.Reason_REASON_INVALID,
	} {
		if _, err := a.acquire(t, text, "n", nil); reasonOf(err) != want {
			t.Errorf("the session %.40q is answered by %v, not %v", text, err, want)
		} else if secret != "" && strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("a secret is in the error %v", err)
		}
	}
}

// TestBadInput: what is wrong is refused at once, and the error says what is right (P10).
func TestBadInput(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	long := strings.Repeat("x", 1025)
	for what, edit := range map[string]func(*cellv1.AcquireRequest){
		"name is empty":  func(m *cellv1.AcquireRequest) { m.Name = "" },
		"path element":   func(m *cellv1.AcquireRequest) { m.Name = "a//b" },
		"512":            func(m *cellv1.AcquireRequest) { m.Name = long },
		"at most 64":     func(m *cellv1.AcquireRequest) { m.Request = long },
		"is not allowed": func(m *cellv1.AcquireRequest) { m.Request = "a/b" },
		"mode":           func(m *cellv1.AcquireRequest) { m.Mode = 9 },
		"MODE_SLOT":      func(m *cellv1.AcquireRequest) { m.Slots = 1 },
		"of 2 slots":     func(m *cellv1.AcquireRequest) { m.Mode, m.Slots, m.Permits = cellv1.Mode_MODE_SLOT, 2, 3 },
		"note":           func(m *cellv1.AcquireRequest) { m.Note = long },
		"tokens":         func(m *cellv1.AcquireRequest) { m.Tokens = -1 },
		"wait":           func(m *cellv1.AcquireRequest) { m.Wait = durationpb.New(time.Hour) },
		"min_hold":       func(m *cellv1.AcquireRequest) { m.MinHold = durationpb.New(-time.Second) },
		"min_hold: ":     func(m *cellv1.AcquireRequest) { m.MinHold = &durationpb.Duration{Seconds: 1 << 60} },
	} {
		_, err := a.acquire(t, s, "n", edit)
		if reasonOf(err) != cellv1.Reason_REASON_INVALID || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("P10: %s: %v", what, err)
		}
	}
	for what, m := range map[string]*cellv1.OpenRequest{
		"shortest is 2s": {Ttl: durationpb.New(time.Second)},
		"ttl":            {Ttl: durationpb.New(25 * time.Hour)},
		"lock_delay":     {LockDelay: durationpb.New(time.Hour)},
		"note":           {Note: long},
	} {
		_, err := a.Open(t.Context(), m)
		if reasonOf(err) != cellv1.Reason_REASON_INVALID || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("P10: %s: %v", what, err)
		}
	}
	for what, locks := range map[string][]*cellv1.Release{
		"between 1 and":  nil,
		"between 1 and ": make([]*cellv1.Release, maxReleases+1),
		"path element":   {{Name: "/"}},
		"token":          {{Name: "n", Token: 1 << 60}},
	} {
		for i := range locks {
			if locks[i] == nil {
				locks[i] = &cellv1.Release{Name: "n"}
			}
		}
		_, err := a.Release(t.Context(), &cellv1.ReleaseRequest{Session: s, Locks: locks})
		if reasonOf(err) != cellv1.Reason_REASON_INVALID || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("P10: %s: %v", what, err)
		}
	}
}

// TestSequencers: a sequencer is good as long as its hold stands.
func TestSequencers(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	check := func(text string, want cellv1.Reason) {
		t.Helper()
		_, err := a.CheckSequencer(t.Context(), &cellv1.CheckSequencerRequest{Sequencer: text})
		if reasonOf(err) != want || (err == nil) != (want == 0) {
			t.Errorf("the sequencer %s: %v, not %v", text, err, want)
		}
	}
	first := a.take(t, s, "a b/c", nil)
	check(first.Sequencer, 0)
	check(strings.Replace(first.Sequencer, ":x:", ":s:", 1), cellv1.Reason_REASON_STALE)
	check("hf1:x:1:a+b%2Fc", cellv1.Reason_REASON_STALE)
	check("nonsense", cellv1.Reason_REASON_INVALID)
	check("hf1:x:1:a%2F%2Fb", cellv1.Reason_REASON_INVALID)
	if _, err := a.Break(t.Context(), &cellv1.BreakRequest{Name: "a b/c", Token: first.Token}); err != nil {
		t.Fatal(err)
	}
	check(first.Sequencer, cellv1.Reason_REASON_STALE)
	if _, err := a.Break(t.Context(), &cellv1.BreakRequest{Name: "a b/c", Token: first.Token}); reasonOf(err) != cellv1.Reason_REASON_NOT_HELD {
		t.Errorf("breaking a hold that is broken: %v", err)
	}
	if got := a.release(t, s, &cellv1.Release{Name: "a b/c", Token: first.Token}); got != cellv1.Reason_REASON_BROKEN {
		t.Errorf("P4: the release of a broken hold says %v", got)
	}
}

// TestList: names are listed in their order, page by page.
func TestList(t *testing.T) {
	a := dial(start(t))
	s := a.open(t, 30*time.Second)
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("p/%02d", i))
		a.take(t, s, names[i], nil)
	}
	a.take(t, s, "other", nil)
	var got []string
	for after := ""; ; {
		r, err := a.LocksClient.List(t.Context(), &cellv1.LocksListRequest{Prefix: "p/", After: after, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Locks {
			got = append(got, l.Name)
			after = l.Name
		}
		if !r.More {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("listed are %v", got)
	}
}
