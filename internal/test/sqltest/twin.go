// Package sqltest has the tests of package sqllock that are the same for all
// databases. The modules beside it, which have the databases, call them.
package sqltest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// TwinPoll is the poll of the driver that Twin is given: nothing ends by itself
// while it runs, so that time need not be compared.
const TwinPoll = time.Hour

// twin does every step on a driver and on the specification, package record, and
// compares.
type twin struct {
	*testing.T
	*rand.Rand
	d     fullDriver
	name  string
	now   driver.Instant
	rec   record.Record
	gone  record.Tombstones
	rules record.Rules
	last  driver.Token      // of the record
	used  [][2]driver.Token // tokens that were used, as the record and the driver count them
	had   map[string]*had   // by owner
}

// had is what the driver has granted, and the last token that was used of it as the record
// counts them.
type had struct {
	driver.Grant
	used driver.Token
}

// fullDriver has all that a driver can have in one store.
type fullDriver interface {
	driver.Driver
	driver.Queuer
	driver.Operator
	driver.Downgrader
}

// Twin compares a driver with package record, step by step: the quick statements for names
// that nobody else uses must do the same as the others.
func Twin(t *testing.T, d driver.Driver) {
	t.Helper()
	if poll := d.Caps().PollInterval(); poll != TwinPoll {
		t.Fatalf("the driver's poll is %v", poll)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for episode := range 25 {
		w := &twin{T: t, Rand: rng, d: d.(fullDriver), name: fmt.Sprintf("orders/%d/%x", episode, seed), now: 1, had: map[string]*had{}}
		w.rules = record.Rules{
			Poll:    TwinPoll,
			Last:    &w.last,
			Granted: func(*record.Place) {},
		}
		w.episode()
		if t.Failed() {
			t.Fatalf("seed %d, episode %d", seed, episode)
		}
	}
}

func (w *twin) episode() {
	semaphore := w.IntN(3) == 0
	var reqs []driver.Request
	for range 60 {
		w.now++
		if len(reqs) < 5 {
			reqs = append(reqs, w.request(semaphore))
		}
		i := w.IntN(len(reqs))
		step, retire := w.step(reqs[i])
		w.same(step)
		if w.Failed() {
			return
		}
		if retire {
			reqs = slices.Delete(reqs, i, i+1)
		}
	}
}

func (w *twin) request(semaphore bool) driver.Request {
	r := driver.Request{
		Name: w.name, Owner: fmt.Sprintf("an owner's %%%d", w.Uint32()), Note: `a "note" \`, Unfair: w.IntN(6) == 0,
		TTL: []time.Duration{10 * time.Minute, 10 * time.Hour}[w.IntN(2)], Mode: driver.Mode(w.IntN(5) / 4),
	}
	if w.IntN(2) == 0 {
		r.Tokens = 1 + w.IntN(2)*w.IntN(w.d.Caps().TokenBlock)
	}
	if w.IntN(5) == 0 {
		r.MinHold = time.Hour
	}
	if semaphore != (w.IntN(10) == 0) {
		r.Mode, r.Slots, r.Permits = driver.Slot, 3+w.IntN(8)/7, 1+w.IntN(3)
	}
	return r
}

// step does one step on both. Retire says that the owner is not used again.
func (w *twin) step(r driver.Request) (step string, retire bool) {
	ctx := w.Context()
	w.rec.Settle(w.now, &w.rules)
	g, used := w.handedOn(r)
	switch w.IntN(10) {
	case 0, 1:
		got, err := w.d.Try(ctx, r)
		w.asked("Try", r, false, got, err)
		return "Try", false
	case 2, 3, 4:
		got, err := w.d.Enqueue(ctx, r)
		w.asked("Enqueue", r, true, got, err)
		return "Enqueue", false
	case 5:
		got := w.d.Renew(ctx, []driver.Grant{g})[0]
		h := w.rec.Renew(r.Owner, w.now, w.now)
		if h != nil {
			h.HandedOver(&driver.Grant{Token: used, HandedOver: g.HandedOver})
		}
		w.gave("Renew", r, got.Err, h != nil)
		return "Renew", false
	case 6, 7:
		if w.IntN(4) == 0 {
			g.Token, used = 0, 0
		}
		g.Stray = w.IntN(4) == 0
		if w.IntN(20) > 0 { // else the name is closed for the rest of the episode
			g.MinHold = 0
		}
		got := w.d.Release(ctx, []driver.Grant{g})[0]
		held := w.rec.Release(r.Owner, g.MinHold, used, w.now, &w.rules)
		delete(w.had, r.Owner)
		w.gave("Release", r, got, held || g.Token == 0)
		w.rec.Settle(w.now, &w.rules)
		if g.Token == 0 || g.Stray {
			w.gone.Put(r.Owner, driver.ErrNotHeld, w.now, driver.Instant(time.Hour))
		}
		return "Release", w.IntN(3) > 0
	case 8:
		if r.Mode == driver.Slot {
			return "nothing", false
		}
		got, err := w.d.Downgrade(ctx, g)
		h := w.rec.Downgrade(r.Owner, w.now, w.now)
		w.gave("Downgrade", r, err, h != nil)
		if h != nil && (got.Mode != driver.Shared || got.Valid != r.TTL) {
			w.Errorf("Downgrade gave %+v", got)
		}
		w.rec.Settle(w.now, &w.rules)
		return "Downgrade", false
	}
	return "Break", w.broke(r, g)
}

// handedOn returns the grant of the owner, if it has one, as it is after some hand-overs
// inside its process, and the last token that was used, as the record counts them.
func (w *twin) handedOn(r driver.Request) (g driver.Grant, used driver.Token) {
	h := w.had[r.Owner]
	if h == nil {
		return driver.Grant{Request: r, Token: 1}, 0
	}
	if w.rec.Held(r.Owner) != nil && h.Block > 1 && w.IntN(2) == 0 {
		n := driver.Token(1 + w.IntN(h.Block-1))
		h.Token, h.Block, h.HandedOver, h.used = h.Token+n, h.Block-int(n), true, h.used+n
		w.use(h.used, h.Token)
	}
	return h.Grant, h.used
}

// use compares the order of the tokens that were used.
func (w *twin) use(rec, got driver.Token) {
	w.Helper()
	for _, before := range w.used {
		if cmp.Compare(rec, before[0]) != cmp.Compare(got, before[1]) {
			w.Errorf("P3: the driver's tokens %d and %d are the record's %d and %d", before[1], got, before[0], rec)
		}
	}
	w.used = append(w.used, [2]driver.Token{rec, got})
}

// broke breaks the owner's hold, if there is one.
func (w *twin) broke(r driver.Request, g driver.Grant) bool {
	ctx := w.Context()
	h := w.rec.Held(r.Owner)
	if h == nil {
		if err := w.d.Break(ctx, w.name, 1); !errors.Is(err, driver.ErrNotHeld) {
			w.Errorf("Break of no hold returned %v", err)
		}
		return false
	}
	info, err := w.d.Inspect(ctx, w.name)
	i := slices.IndexFunc(info.Holders, func(h driver.Holder) bool { return h.Owner == r.Owner })
	if err != nil || i < 0 {
		w.Fatalf("Inspect shows %+v, %v; the record has a hold of %s", info, err, r.Owner)
	}
	if err := w.d.Break(ctx, w.name, info.Holders[i].Token); err != nil {
		w.Errorf("Break returned %v", err)
	}
	if had := w.had[r.Owner]; had != nil && had.Block > 1 {
		w.use(h.Last, had.Token+driver.Token(had.Block)-1) // maybe: nobody knows
	}
	w.rec.Break(h.Token)
	w.rec.Settle(w.now, &w.rules)
	if got := w.d.Renew(ctx, []driver.Grant{g})[0].Err; !errors.Is(got, driver.ErrBroken) {
		w.Errorf("Renew of a broken hold returned %v", got)
	}
	return true
}

// asked compares what came of a request.
func (w *twin) asked(step string, r driver.Request, queue bool, got driver.Grant, err error) {
	w.Helper()
	if gone := w.gone.Get(r.Owner, w.now); gone != nil {
		if !errors.Is(err, gone) {
			w.Errorf("%s of an owner that is gone returned %v, the record says %v", step, err, gone)
		}
		return
	}
	confirms := queue && w.rec.Queued(r.Owner) != nil
	h, want := w.rec.Ask(r, "", queue, w.now, w.now, &w.rules)
	held, isHeld := want.(*driver.HeldError)
	switch {
	case want == nil:
		want := w.rec.Grant(h)
		if err != nil || got.Request != r || got.Token == 0 || got.Valid != h.TTL || got.Block != want.Block || got.Contended != want.Contended {
			w.Errorf("%s gave %+v, %v; the record says %+v", step, got, err, want)
		}
		w.use(want.Token, got.Token)
		if w.had[r.Owner] == nil { // else it may have been handed on since
			w.had[r.Owner] = &had{got, want.Token}
		}
	case isHeld:
		have, ok := err.(*driver.HeldError)
		if ok && confirms && have.Queued == 0 { // not told
			held.Queued = 0
		}
		if !ok || have.Queued != held.Queued || have.Note != held.Note || (have.Token == 0) != (held.Token == 0) {
			w.Errorf("%s returned %#v, the record says %#v", step, err, held)
		}
	case !errors.Is(err, want) && (!errors.Is(want, driver.ErrMismatch) || err == nil || err.Error() != want.Error()):
		w.Errorf("%s returned %v, the record says %v", step, err, want)
	}
}

// gave compares what came of a step on a hold.
func (w *twin) gave(step string, r driver.Request, got error, held bool) {
	w.Helper()
	want := error(nil)
	if !held {
		if want = w.gone.Get(r.Owner, w.now); want == nil {
			want = driver.ErrNotHeld
		}
	}
	if !errors.Is(got, want) {
		w.Errorf("%s returned %v, the record says %v", step, got, want)
	}
}

// same compares who holds, in the order of the tokens, who waits, and whether the
// name is closed.
func (w *twin) same(step string) {
	w.Helper()
	got, err := w.d.Inspect(w.Context(), w.name)
	if err != nil {
		w.Fatal(err)
	}
	have, want := timeless(got), timeless(w.rec.Info(w.name, w.now))
	if !reflect.DeepEqual(have, want) {
		w.Errorf("after %s the name is\n%+v; the record says\n%+v", step, have, want)
	}
}

// timeless is an Info without times, and with tokens that only tell their order.
func timeless(info driver.Info) driver.Info {
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int { return int(a.Token - b.Token) })
	for i := range info.Holders {
		h := &info.Holders[i]
		h.Token, h.Held, h.Expires = driver.Token(i), 0, 0
	}
	for i := range info.Waiters {
		info.Waiters[i].Waiting = 0
	}
	if info.ClosedFor > 0 {
		info.ClosedFor = 1
	}
	return info
}
