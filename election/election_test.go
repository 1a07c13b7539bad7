package election_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// bubbleClock is the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

// world is one store in virtual time.
type world struct {
	*testing.T
	clock bubbleClock
	store *memlock.Store
}

func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, clock: bubbleClock{time.Now()}}
		w.store = memlock.NewStore(&memlock.Options{Clock: w.clock})
		test(w)
	})
}

// candidate is one process: its election, and its way to the store. Its driver lacks the optional interface
// to which without points.
func (w *world) candidate(without any) (*election.Election, *chaos.Driver, *holdfast.Client) {
	w.Helper()
	way := chaos.New(limited{wrap.Forward{Driver: w.store.Client()}, without}, chaos.Options{})
	c, err := holdfast.New(way, &holdfast.ClientOptions{Clock: w.clock})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return election.New(c, "office", &holdfast.Options{TTL: 10 * time.Second}), way, c
}

// limited lacks something.
type limited struct {
	wrap.Forward
	without any
}

func (l limited) Lacks(ability any) bool { return ability == l.without || l.Forward.Lacks(ability) }

func (w *world) campaign(e *election.Election, value string) *election.Leadership {
	w.Helper()
	l, err := e.Campaign(w.Context(), value)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// observed collects what an observer sees.
type observed struct {
	mu   sync.Mutex
	seen []string
}

func (w *world) observe(e *election.Election) *observed {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observed{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range e.Observe(ctx) {
			text := l.Value
			switch {
			case err != nil:
				text = "error"
			case l.Vacant:
				text = "vacant"
			}
			o.mu.Lock()
			o.seen = append(o.seen, text)
			o.mu.Unlock()
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
	return o
}

func (o *observed) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.seen, " ")
}

// TestOneLeaderAtATime: candidates in order, each with its value and a higher
// token (P1, P3, P8).
func TestOneLeaderAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _, _ := w.candidate(nil)
		b, _, _ := w.candidate(nil)
		first := w.campaign(a, "a")
		elected := make(chan *election.Leadership)
		go func() { elected <- w.campaign(b, "b") }()
		synctest.Wait()
		select {
		case <-elected:
			w.Fatal("two leaders")
		default:
		}
		if l, err := b.Leader(w.Context()); err != nil || l != (election.Leader{Value: "a", Token: first.Token()}) {
			w.Errorf("Leader: %+v, %v", l, err)
		}
		if err := first.Resign(); err != nil {
			w.Fatal(err)
		}
		second := <-elected
		if second.Token() <= first.Token() {
			w.Errorf("token %d after %d", second.Token(), first.Token())
		}
		if err := second.Resign(); err != nil {
			w.Fatal(err)
		}
		if l, err := a.Leader(w.Context()); err != nil || !l.Vacant || l.Value != "" {
			w.Errorf("Leader of a vacant office: %+v, %v", l, err)
		}
	})
}

// TestObserve: the present leader first, then changes of the leader, and vacancies,
// by hints and by polls alike.
func TestObserve(t *testing.T) {
	for _, c := range []struct {
		name    string
		without any
		within  time.Duration // after which a change is seen
	}{{"by hints", nil, 0}, {"by polls", (*driver.Watcher)(nil), driver.DefaultPoll}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, _, _ := w.candidate(nil)
				observer, _, _ := w.candidate(c.without)
				seen := w.observe(observer)
				settle := func() { time.Sleep(c.within); synctest.Wait() }
				settle()
				l := w.campaign(a, "first")
				settle()
				if err := l.Resign(); err != nil {
					w.Fatal(err)
				}
				settle()
				l = w.campaign(a, "again")
				settle()
				if got, want := seen.text(), "vacant first vacant again"; got != want {
					w.Errorf("observed %q, want %q", got, want)
				}
				late := w.observe(observer)
				settle()
				if got := late.text(); got != "again" {
					w.Errorf("a late observer saw %q, want the present leader", got)
				}
				if err := l.Resign(); err != nil {
					w.Fatal(err)
				}
			})
		})
	}
}

// TestVanishedLeader: the office is open again after the TTL, and observers see
// it although nobody touches the store.
func TestVanishedLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		a, way, _ := w.candidate(nil)
		observer, _, _ := w.candidate((*driver.Watcher)(nil))
		l := w.campaign(a, "a")
		seen := w.observe(observer)
		way.Partition()
		time.Sleep(10*time.Second + 20*time.Millisecond)
		synctest.Wait()
		if err := l.Err(); !errors.Is(err, holdfast.ErrLost) {
			w.Errorf("the leadership that was cut off: %v", err)
		}
		if got, want := seen.text(), "a vacant"; got != want {
			w.Errorf("observed %q, want %q", got, want)
		}
		way.Heal()
	})
}

// TestObserverCutOff: it says that it does not know, never an old answer, and
// goes on.
func TestObserverCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		a, _, _ := w.candidate(nil)
		observer, way, _ := w.candidate(nil)
		first := w.campaign(a, "a")
		seen := w.observe(observer)
		synctest.Wait()
		way.Partition()
		time.Sleep(7 * time.Second)
		if err := first.Resign(); err != nil {
			w.Fatal(err)
		}
		second := w.campaign(a, "b")
		way.Heal()
		time.Sleep(2 * driver.DefaultPoll)
		synctest.Wait()
		got := strings.Fields(seen.text())
		if len(got) < 3 || got[0] != "a" || got[1] != "error" || got[len(got)-1] != "b" {
			w.Errorf("observed %v, want a, errors, b", got)
		}
		if err := second.Resign(); err != nil {
			w.Fatal(err)
		}
	})
}

// TestObserveEnds: with the context, with the client, with the caller.
func TestObserveEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		e, _, c := w.candidate(nil)
		for range e.Observe(w.Context()) {
			break
		}
		ended := make(chan error)
		go func() {
			var last error
			for _, err := range e.Observe(context.Background()) {
				last = err
			}
			ended <- last
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			w.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, holdfast.ErrClosed) {
			w.Errorf("the observer of a closed client ended with %v", err)
		}
	})
}

// TestUnsupported: a store that cannot do it says so.
func TestUnsupported(t *testing.T) {
	inWorld(t, func(w *world) {
		e, _, _ := w.candidate((*driver.Operator)(nil))
		l := w.campaign(e, "a")
		if _, err := e.Leader(w.Context()); !errors.Is(err, holdfast.ErrUnsupported) {
			w.Errorf("Leader: %v", err)
		}
		n := 0
		for _, err := range e.Observe(w.Context()) {
			if n++; !errors.Is(err, holdfast.ErrUnsupported) || n > 1 {
				w.Fatalf("Observe, %d: %v", n, err)
			}
		}
		if err := l.Resign(); err != nil {
			w.Fatal(err)
		}
	})
}

// TestBadValues are refused before anything is asked of the store (P10).
func TestBadValues(t *testing.T) {
	inWorld(t, func(w *world) {
		e, way, _ := w.candidate(nil)
		l := w.campaign(e, "a")
		way.Partition()
		for _, bad := range []string{strings.Repeat("x", holdfast.MaxNote+1), "\xff"} {
			if _, err := e.Campaign(w.Context(), bad); err == nil || errors.Is(err, chaos.ErrPartitioned) {
				w.Errorf("Campaign with %.5q…: %v", bad, err)
			}
		}
		way.Heal()
		if err := e.Do(w.Context(), "a", nil); err == nil {
			w.Error("Do without a function")
		}
		if err := l.Resign(); err != nil {
			w.Fatal(err)
		}
	})
}
