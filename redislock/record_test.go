package redislock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// clockKey has the time by which the scripts go in these tests.
const clockKey = "test:now"

// handClock is moved by hand; the scripts go by it too.
type handClock struct {
	conn *respConn
	now  driver.Instant
}

func (c *handClock) Now() driver.Instant { return c.now }

func (c *handClock) advance(t testing.TB, d time.Duration) {
	c.now = c.now.Add(d)
	c.conn.do(t, "SET", clockKey, strconv.FormatInt(int64(c.now)/1000, 10))
}

// withHandClock lets the scripts read the time from clockKey.
func withHandClock(t *testing.T) {
	t.Helper()
	for _, s := range []*script{takeScript, askScript, renewScript, releaseScript, breakScript, downgradeScript, inspectScript, liveScript} {
		before := *s
		text := strings.Replace(s.Text, "call('TIME')", "{0, redis.call('GET', '"+clockKey+"')}", 1)
		if text == s.Text || strings.Contains(text, "TIME'") {
			t.Fatal("the scripts do not read the time where this test expects it")
		}
		*s = *lifeScriptOf(text)
		t.Cleanup(func() { *s = before })
	}
}

// twin does each step on a client and on the specification, package record, and compares them.
type twin struct {
	*testing.T
	rng   *rand.Rand
	c     *client
	clock *handClock
	name  string
	rec   record.Record
	tombs record.Tombstones
	rules record.Rules
	told  []driver.Grant // what was granted out of the queue in this step
	// held are the grants as their owners have them: a release depends on them.
	held          map[string]driver.Grant
	plain         bool // few owners, and no tombstones: beside a tombstone a hold is not plain
	withoutScript *int // releases
}

// TestScriptsFollowTheRecord compares the scripts with package record, step by
// step.
func TestScriptsFollowTheRecord(t *testing.T) {
	server := shared(t)
	withHandClock(t)
	clock := &handClock{conn: dialResp(t, server.Addr), now: 1_000_000 * driver.Instant(time.Second)}
	defer clock.conn.Close()
	clock.advance(t, 0)
	d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Clock: clock, Poll: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	withoutScript := 0
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for episode := 0; episode < 40 || withoutScript == 0 && episode < 400; episode++ { // one in eight episodes has one
		w := &twin{T: t, rng: rng, c: d.(*client), clock: clock, name: fmt.Sprintf("orders/{%d}", episode), held: map[string]driver.Grant{}, withoutScript: &withoutScript, plain: episode%4 < 2}
		last := driver.Token(0)
		w.rules = record.Rules{
			Poll:    400 * time.Millisecond,
			Last:    &last,
			Granted: func(p *record.Place) { w.told = append(w.told, driver.Grant{Request: p.Request}) },
		}
		w.episode()
		if t.Failed() {
			t.Fatalf("seed %d, episode %d", seed, episode)
		}
	}
	t.Logf("%d holds were released without a script", withoutScript)
	if withoutScript == 0 {
		t.Error("no hold was released without a script")
	}
}

func (w *twin) episode() {
	var reqs []driver.Request
	w.forget(0)
	for range 200 {
		// Coarse, so that what ends at the same instant meets.
		w.clock.advance(w, time.Duration(w.rng.IntN(2)*w.rng.IntN(5))*50*time.Millisecond)
		w.rules.Least = driver.Token(w.clock.now / 1000)
		if len(reqs) < 2 || !w.plain && len(reqs) < 6 {
			reqs = append(reqs, w.request())
		}
		if w.rng.IntN(20) == 0 {
			w.forget(time.Duration(w.rng.IntN(6)) * 50 * time.Millisecond)
		}
		i := w.rng.IntN(len(reqs))
		step, retire := w.step(&reqs[i])
		w.same(reqs[i].Owner, step)
		if w.Failed() {
			return
		}
		if retire {
			reqs = append(reqs[:i], reqs[i+1:]...)
		}
	}
}

// forget makes the server one that may have forgotten holds, and grants when so much time has passed.
func (w *twin) forget(within time.Duration) {
	key := w.c.lifeKey("")
	life, _, _ := strings.Cut(w.clock.conn.do(w, "GET", key).(string), " ")
	w.rules.Opens = w.clock.now.Add(within)
	w.clock.conn.do(w, "SET", key, fmt.Sprintf("%s %d 1000000", life, w.rules.Opens/1000))
}

func (w *twin) request() driver.Request {
	ms := func(n int) time.Duration { return time.Duration(w.rng.IntN(n/50)) * 50 * time.Millisecond }
	r := driver.Request{
		Name: w.name, Owner: fmt.Sprintf("an owner %d%%", w.rng.Uint32()), Note: " a\x00b\n c 1 2 3 %d\r\n ", Unfair: w.rng.IntN(6) == 0,
		TTL: 50*time.Millisecond + ms(1500), Mode: driver.Mode(w.rng.IntN(2)),
	}
	if !w.plain || w.rng.IntN(8) == 0 {
		r.Tokens = []int{0, 1, 3, tokenBlock}[w.rng.IntN(4)]
	}
	if w.rng.IntN(3) == 0 {
		r.LockDelay, r.MinHold = ms(300), ms(2000)
	}
	// A name is used as a semaphore by every other episode, and by few others.
	if (int(w.name[len(w.name)-2])%2 == 0) != (w.rng.IntN(8) == 0) {
		r.Mode, r.Slots, r.Permits = driver.Slot, 3+w.rng.IntN(8)/7, 1+w.rng.IntN(3)
	}
	return r
}

// settle settles the record, and takes down the grants as their owners are told of them.
func (w *twin) settle() {
	n := len(w.told)
	w.rec.Settle(w.clock.now, &w.rules)
	for i := n; i < len(w.told); i++ {
		w.told[i] = w.rec.Grant(w.rec.Held(w.told[i].Owner))
	}
}

// step does one step on both. Retire says that the owner is not used again.
func (w *twin) step(req *driver.Request) (step string, retire bool) {
	r := *req
	now, ctx := w.clock.now, w.Context()
	w.settle()
	g, ok := w.held[r.Owner]
	if !ok {
		g = driver.Grant{Request: r, Token: 1}
	}
	switch w.rng.IntN(10) {
	case 0, 1:
		got, err := w.c.Try(ctx, r)
		w.asked("Try", r, false, got, err)
		return "Try", false
	case 2, 3, 4:
		got, err := w.c.Enqueue(ctx, r)
		w.asked("Enqueue", r, true, got, err)
		return "Enqueue", false
	case 5:
		if h := w.rec.Held(r.Owner); w.rng.IntN(4) == 0 && (h == nil || h.Mode == driver.Exclusive) {
			g.Token, g.Handle = max(2, g.Token+driver.Token(w.rng.IntN(3_000_000)-1_000_000)), nil
			got := w.c.Raise(ctx, []driver.Grant{g})[0]
			w.gave("Raise", r, got.Err, w.rec.Raise(&g, now, now, &w.rules) != nil)
			if g.Since, g.Valid = got.Since, got.Valid; ok {
				w.held[r.Owner] = g
			}
			return "Raise", false
		}
		if g.HandedOver = w.rng.IntN(3) == 0; g.HandedOver && ok {
			room := 0 // in its block: the next token may be another hold's
			if h := w.rec.Held(r.Owner); h != nil && h.Last > g.Token {
				room = int(h.Last - g.Token)
			}
			g.Token += driver.Token(w.rng.IntN(min(room, 2) + 1))
		}
		got := w.c.Renew(ctx, []driver.Grant{g})[0]
		h := w.rec.Renew(r.Owner, now, now)
		if h != nil {
			h.HandedOver(&g)
		}
		w.gave("Renew", r, got.Err, h != nil)
		if g.Since, g.Valid, g.HandedOver = got.Since, got.Valid, false; ok {
			w.held[r.Owner] = g
		}
		return "Renew", false
	case 6:
		if !w.plain {
			if w.rng.IntN(2) == 0 {
				g.Token, g.MinHold = driver.Token(w.rng.IntN(2)), 0
			}
			g.Stray = w.rng.IntN(3) == 0
		}
		if done, err := w.c.releasePlain(ctx, &g); done {
			if err != nil {
				w.Error(err)
			}
			*w.withoutScript++
			w.rec.Release(r.Owner, g.MinHold, g.Token, now, &w.rules) // may have expired: nobody has looked
			return "Release without a script", w.rng.IntN(3) > 0
		}
		got := w.c.Release(ctx, []driver.Grant{g})[0]
		held := w.rec.Release(r.Owner, g.MinHold, g.Token, now, &w.rules)
		w.gave("Release", r, got, held || g.Token == 0)
		w.settle()
		if g.Token == 0 || g.Stray {
			w.tombs.Put(r.Owner, driver.ErrNotHeld, now, now.Add(max(r.TTL, withdrawnFor)))
		}
		return "Release", w.rng.IntN(3) > 0
	case 7:
		if r.Mode == driver.Slot {
			_, err := w.c.Inspect(ctx, w.name) // settles it
			return fmt.Sprint("Inspect: ", err), false
		}
		got, err := w.c.Downgrade(ctx, g)
		h := w.rec.Downgrade(r.Owner, now, now)
		w.gave("Downgrade", r, err, h != nil)
		if h != nil {
			want := w.rec.Grant(h)
			want.Block, want.Contended = got.Block, got.Contended // of no use for a shared hold
			if !reflect.DeepEqual(got, want) {
				w.Errorf("Downgrade gave %+v, the record says %+v", got, want)
			}
		}
		delete(w.held, r.Owner)
		w.settle()
		return "Downgrade", false
	}
	h := w.rec.Held(r.Owner)
	if h == nil || w.plain {
		if err := w.c.Break(ctx, w.name, 1); !errors.Is(err, driver.ErrNotHeld) {
			w.Errorf("Break of no hold returned %v", err)
		}
		return "Break", false
	}
	token := h.Token
	if err := w.c.Break(ctx, w.name, token); err != nil {
		w.Errorf("Break returned %v", err)
	}
	broken, _ := w.rec.Break(token)
	w.tombs.Put(r.Owner, driver.ErrBroken, now, broken.Expires)
	w.settle()
	if w.rng.IntN(2) == 0 { // else the break alone must have passed the name on
		if got := w.c.Renew(ctx, []driver.Grant{g})[0].Err; !errors.Is(got, driver.ErrBroken) {
			w.Errorf("Renew of a broken hold returned %v", got)
		}
	}
	return "Break", true
}

// asked compares the outcome of a request.
func (w *twin) asked(step string, r driver.Request, queue bool, got driver.Grant, err error) {
	w.Helper()
	if why := w.tombs.Get(r.Owner, w.clock.now); why != nil {
		if !errors.Is(err, why) {
			w.Errorf("%s of an owner with a tombstone returned %v, the record says %v", step, err, why)
		}
		return
	}
	h, want := w.rec.Ask(r, "", queue, w.clock.now, w.clock.now, &w.rules)
	if want == nil {
		grant := w.rec.Grant(h)
		grant.Request = r // of a shared hold that was exclusive the owner says so
		grant.Handle = got.Handle
		grant.Contended = grant.Contended || got.Contended // also if only places that have ended are behind it
		if err != nil || got != grant {
			w.Errorf("%s gave %+v, %v; the record says %+v", step, got, err, grant)
		}
		w.held[r.Owner] = got
		return
	}
	if !reflect.DeepEqual(err, want) {
		w.Errorf("%s returned %#v, the record says %#v", step, err, want)
	}
}

// gave compares the outcome of a step on a hold.
func (w *twin) gave(step string, r driver.Request, got error, held bool) {
	w.Helper()
	want := error(nil)
	if !held {
		if want = w.tombs.Get(r.Owner, w.clock.now); want == nil {
			want = driver.ErrNotHeld
		}
	}
	if !errors.Is(got, want) {
		w.Errorf("%s returned %v, the record says %v", step, got, want)
	}
}

// same compares the records, and the news of hand-overs to owners other than the one that made the
// step. The news must be there at once.
func (w *twin) same(owner, step string) {
	w.Helper()
	w.clock.conn.do(w, "PUBLISH", w.c.layout.channel(w.c.id), "b sync") // all news has arrived when this has
	for loss := range w.c.losses {
		if loss.Owners[0] == "sync" {
			break
		}
	}
	for _, want := range w.told {
		w.c.mu.Lock()
		waiter := w.c.waiters[want.Owner]
		w.c.mu.Unlock()
		if waiter == nil {
			if want.Owner != owner {
				w.Errorf("after %s nobody waits for the grant of %s", step, want.Owner)
			}
			continue
		}
		select {
		case got := <-waiter.news:
			want.Contended = want.Contended || got.Contended // also if only places that have ended are behind it
			if want.Owner != owner && got != want {
				w.Errorf("after %s the news is %+v, the record says %+v", step, got, want)
			}
		default:
			w.Errorf("after %s there is no news of the grant of %s", step, want.Owner)
		}
		w.c.removeWaiter(want.Owner)
	}
	w.told = nil
	info, err := w.c.Inspect(w.Context(), w.name)
	want := w.rec.Info(w.name, w.clock.now)
	for _, i := range []driver.Info{info, want} { // holds that were raised are not in order
		slices.SortFunc(i.Holders, func(a, b driver.Holder) int { return strings.Compare(a.Owner, b.Owner) })
	}
	if err != nil || !reflect.DeepEqual(info, want) {
		w.Errorf("after %s the name is\n%+v, %v; the record says\n%+v", step, info, err, want)
	}
}
