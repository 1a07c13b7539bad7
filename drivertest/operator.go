package drivertest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// inspectCases are about what operators see (P9).
var inspectCases = []testCase{
	{name: "an unused name is idle", need: opOperator, run: func(t *trial, a, b driver.Driver) {
		var grants []driver.Grant
		for range 20 {
			r := named(t.request(), t.freshName())
			t.idle(b, r.Name)
			grants = append(grants, t.take(a, r))
		}
		for i, err := range t.releases(a, grants...) {
			if err != nil {
				t.Errorf("P4: a release in a batch failed: %v", err)
			}
			t.idle(b, grants[i].Name)
		}
	}},
	{name: "shows the holder", need: opOperator, kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.Note = longNote
		before := t.now()
		g := t.have(a, r)
		for range 2 {
			listed := t.list(b, t.name)
			if len(listed) != 1 {
				t.Fatalf("P9: List of a held name shows %+v", listed)
			}
			t.shows(listed[0], g, before)
			t.shows(t.inspect(b), g, before)
			g = t.renew(a, g)
		}
	}},
	{name: "shows several holders", need: opOperator, kinds: several, run: func(t *trial, a, b driver.Driver) {
		held := map[string]driver.Grant{}
		for i, d := range []driver.Driver{a, b} {
			g := t.take(d, []driver.Request{t.hold(), t.beside()}[i])
			held[g.Owner] = g
		}
		info := t.inspect(b)
		for _, h := range info.Holders {
			if g, ok := held[h.Owner]; !ok || h.Mode != g.Mode || h.Permits != g.Permits || info.Slots != g.Slots {
				t.Errorf("P9: Inspect shows %+v of %d slots among the holders", h, info.Slots)
			}
			delete(held, h.Owner)
		}
		if len(held) != 0 {
			t.Errorf("P9: Inspect does not show %d of 2 holders", len(held))
		}
	}},
	{name: "shows waiters in order", need: opOperator | opQueue, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, first, second := t.take(a, t.rival()), t.hold(), t.rival()
		first.Note, second.Note = longNote, "second"
		t.queued(b, first)
		t.queued(a, second)
		info := t.inspect(b)
		if t.dropped(first, second) {
			return
		}
		if len(info.Holders) != 1 || info.Holders[0].Owner != g.Owner || len(info.Waiters) != 2 || info.Slots != g.Slots {
			t.Fatalf("P9: Inspect of a name with a holder and two waiters shows %+v", info)
		}
		waiters := info.Waiters
		if !t.caps.Fair && waiters[0].Owner == second.Owner {
			waiters[0], waiters[1] = waiters[1], waiters[0]
		}
		for i, r := range []driver.Request{first, second} {
			w := waiters[i]
			if w.Owner != r.Owner || w.Note != r.Note && !t.caps.NoNotes || w.Mode != r.Mode || w.Permits != 0 && w.Permits != r.Permits {
				t.Errorf("P8: Inspect shows the waiters as %+v", info.Waiters)
			}
		}
		t.withdraw(b, first)
		t.withdraw(a, second)
		if n := len(t.inspect(b).Waiters); n != 0 {
			t.Errorf("P6: Inspect shows %d waiters after all have withdrawn", n)
		}
	}},
}

func (t *trial) inspect(d driver.Driver) driver.Info {
	t.Helper()
	info, err := ops(d).Inspect(t.ctx, t.name)
	if err != nil {
		t.Fatalf("P9: Inspect of %q: %v", t.name, err)
	}
	return info
}

func (t *trial) list(d driver.Driver, prefix string) []driver.Info {
	t.Helper()
	infos, err := t.listOnce(d, prefix)
	if err != nil {
		t.Fatalf("P9: List of %q: %v", prefix, err)
	}
	return infos
}

func (t *trial) listOnce(d driver.Driver, prefix string) (infos []driver.Info, err error) {
	for info, err := range ops(d).List(t.ctx, prefix) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// idle asserts that a name is not in use.
func (t *trial) idle(d driver.Driver, name string) {
	t.Helper()
	info, err := ops(d).Inspect(t.ctx, name)
	if err != nil || !info.Idle() || info.Name != name {
		t.Errorf("P9: Inspect of the unused name %q shows %+v, %v", name, info, err)
	}
	if infos := t.list(d, name); len(infos) != 0 {
		t.Errorf("P9: List shows a released name, or a key beside it: %+v", infos)
	}
}

// longNote is as long as package holdfast allows, and has characters that stores may change, or cut in two.
var longNote = func() string {
	note := "the note: \"\\'% %s {} <a> &amp;\u00a0é 🔒 "
	note += strings.Repeat("日本", (holdfast.MaxNote-len(note))/6)
	return note + strings.Repeat("x", holdfast.MaxNote-len(note))
}()

// shows asserts that a hold, and nothing else, is shown as it was granted after an instant.
func (t *trial) shows(info driver.Info, g driver.Grant, before driver.Instant) {
	t.Helper()
	if len(info.Holders) != 1 || len(info.Waiters) != 0 {
		t.Fatalf("P9: of a held name that nobody waits for is shown %+v", info)
	}
	const tick = time.Second // a store may count in seconds
	took := t.now().Sub(before) + tick
	switch h := info.Holders[0]; {
	case info.Name != g.Name || h.Owner != g.Owner || h.Mode != g.Mode || h.Permits != g.Permits || info.Slots != g.Slots:
		t.Errorf("P9: another hold is shown: %+v of %d slots", h, info.Slots)
	case info.ClosedFor > 0:
		t.Errorf("P9: a held name is shown as closed for %v", info.ClosedFor)
	case h.Note != g.Note && !t.caps.NoNotes:
		t.Errorf("P9: the note %q is shown as %q", g.Note, h.Note)
	case h.Token != g.Token && (g.Token != 0 || t.caps.Fencing && g.Mode != driver.Slot): // of a hold without a token is shown what Break takes
		t.Errorf("P3: token %d is shown, the grant has %d", h.Token, g.Token)
	case h.Held < 0 || h.Held > took:
		t.Errorf("P9: a hold of at most %v is shown as %v old", took, h.Held)
	case h.Expires <= 0 || h.Expires > g.TTL+t.caps.Guarantees.Lateness+tick:
		t.Errorf("P9: a hold of %v is shown to expire in %v", g.TTL, h.Expires)
	case h.Expires < g.Valid/2-took: // a store may not know how long ago a session was renewed
		t.Errorf("P1: a hold that is valid for %v, and at most %v old, is shown to expire in %v", g.Valid, took, h.Expires)
	}
}

// watchCases are about who is told of changes.
var watchCases = []testCase{
	{name: "tells of every change", need: opWatch | opOperator, run: func(t *trial, a, b driver.Driver) {
		hints := t.watch(t.ctx, b)
		g := t.take(a, t.request())
		t.hinted(b, hints, "a new holder", func(i driver.Info) bool { return len(i.Holders) == 1 })
		if t.can(opQueue) {
			r := t.request() // nothing but the owner changes
			t.queued(a, r)
			w := t.waitFor(a, r)
			t.release(a, g)
			t.hinted(b, hints, "a hand-off", func(i driver.Info) bool { return len(i.Holders) == 1 && len(i.Waiters) == 0 })
			g = t.renew(a, t.granted(w, t.poll, "P7: a waiter was not granted the released name"))
		}
		if t.can(opDowngrade) && t.caps.Shared {
			g = t.downgrade(a, g)
			t.hinted(b, hints, "a downgrade", func(i driver.Info) bool { return i.Holders[0].Mode == driver.Shared })
		}
		t.release(a, g)
		t.hinted(b, hints, "a release", driver.Info.Idle)
		next := t.take(b, t.request())
		t.hinted(b, hints, "its own client's hold", func(i driver.Info) bool { return len(i.Holders) == 1 })
		if t.can(opOperator) && t.caps.Fencing {
			t.breakHold(a, next)
			t.hinted(b, hints, "a break", driver.Info.Idle)
		}
	}},
	{name: "ends with its context", need: opWatch | opOperator, run: func(t *trial, a, _ driver.Driver) {
		ctx, cancel := context.WithCancel(t.ctx)
		hints := t.watch(ctx, a)
		cancel()
		ends(t, hints, "P9: the channel of a watch was not closed after its context had ended")
	}},
	// If an inspection made a hint, a watcher that inspects the name at every hint would do so without end.
	{name: "does not wake itself", need: opWatch | opOperator, run: func(t *trial, a, b driver.Driver) {
		hints := t.watch(t.ctx, b)
		t.take(a, t.request())
		t.hinted(b, hints, "a new holder", func(i driver.Info) bool { return len(i.Holders) == 1 })
		const inspections = 20
		told := 0
		for range inspections {
			t.inspect(b)
			select {
			case <-hints:
				told++
			case <-time.After(t.tick()):
			}
		}
		if told > inspections/2 {
			t.Errorf("P9: of %d inspections of a name that did not change, %d were told as changes", inspections, told)
		}
	}},
}

func (t *trial) watch(ctx context.Context, d driver.Driver) <-chan struct{} {
	t.Helper()
	hints, err := ops(d).Watch(ctx, t.name)
	if err != nil {
		t.Fatalf("P7: Watch: %v", err)
	}
	return hints
}

// hinted waits for hints, and inspects the name after each, until it is as wanted.
func (t *trial) hinted(d driver.Driver, hints <-chan struct{}, change string, want func(driver.Info) bool) {
	t.Helper()
	for end := time.After(t.slack); ; {
		select {
		case _, more := <-hints:
			if !more {
				t.Fatalf("P7: the channel of a watch was closed")
			}
			if want(t.inspect(d)) {
				return
			}
		case <-end:
			t.Fatalf("P7: a watch was not told of %s", change)
		}
	}
}

// breaksCases are about an operator's break (P4), which the holder is told of (P2).
var breaksCases = []testCase{
	{name: "needs the token it saw", need: opOperator | opFencing, run: func(t *trial, a, b driver.Driver) {
		t.breaksNothing(b, 7, "P4: breaking an unused name")
		old := t.take(a, t.request())
		t.release(a, old)
		g := t.take(a, t.request())
		for _, token := range []driver.Token{old.Token, g.Token + 1, 0, -1} {
			t.breaksNothing(b, token, "P4: a break by another token")
		}
		t.refused(b, t.request(), "P4: a break with another token freed the hold")
		t.renew(a, g)
	}},
	{name: "is told to the holder", need: opOperator | opFencing, kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		t.breakHold(b, g)
		t.told(a, g)
		t.breaksNothing(b, g.Token, "P4: breaking a hold twice")
		next := t.take(b, t.rival())
		t.after(next, g, "the hold before was broken")
		t.told(a, g)
		t.leaves(a, g, b, next)
	}},
	{name: "one of several", need: opOperator | opFencing, kinds: several, run: func(t *trial, a, b driver.Driver) {
		g1, g2 := t.take(a, t.beside()), t.take(b, t.hold())
		t.breakHold(b, g1)
		t.told(a, g1)
		// Where two holds have one token, the break may have meant both.
		if g1.Token != g2.Token || g1.Token == 0 {
			t.renew(b, g2)
			t.refused(a, t.rival(), "P4: breaking one of two holds freed the other")
		}
	}},
	{name: "hands the name on", need: opOperator | opQueue | opFencing, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		w := t.waitFor(b, r)
		t.breakHold(a, g)
		t.after(t.granted(w, t.poll, "P7: a waiter was not granted the broken name"), g, "the hold before was broken")
		t.told(a, g)
	}},
	{name: "ignores lock-delay", need: opOperator | opFencing, kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.LockDelay, r.MinHold = t.long, t.long
		g := t.have(a, r)
		t.breakHold(b, g)
		t.freed(b, g, "P4: a broken hold kept the name closed for its delays")
	}},
	// Losses may be missed, but what they say must be so.
	{name: "losses are true", need: opOperator | opNotify | opFencing, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		losses := ops(a).Losses()
		broken, stays := t.take(a, t.hold()), t.take(a, t.elsewhere())
		t.breakHold(b, broken)
		for end := time.After(max(50*time.Millisecond, t.poll/4)); ; {
			select {
			case loss, ok := <-losses:
				if !ok {
					t.Fatalf("P2: the channel of losses was closed before the driver")
				}
				for _, owner := range loss.Owners {
					if owner == stays.Owner || owner == broken.Owner && !errors.Is(loss.Err, driver.ErrBroken) {
						t.Errorf("P2: a loss was told of a hold that lives (%t), or not as ErrBroken: %v", owner == stays.Owner, loss.Err)
					}
				}
				continue
			case <-end:
			}
			t.told(a, broken)
			t.renew(a, stays)
			return
		}
	}},
	{name: "close closes losses", need: opNotify, alone: func(t *trial) {
		d := t.h.Open(t.TB)
		losses := ops(d).Losses()
		t.close(d)
		ends(t, losses, "P9: Close did not close the channel of losses")
	}},
}

// breakHold breaks a hold by its token, or, if it has none, by what Inspect shows in its place.
func (t *trial) breakHold(d driver.Driver, g driver.Grant) {
	t.Helper()
	token := g.Token
	if token == 0 && t.can(opOperator) {
		for _, h := range t.inspect(d).Holders {
			if h.Owner == g.Owner {
				token = h.Token
			}
		}
	}
	if err := ops(d).Break(t.ctx, g.Name, token); err != nil {
		t.Fatalf("P4: breaking a hold by its token failed: %v", err)
	}
}

// breaksNothing asserts that no hold of the case's name has a token.
func (t *trial) breaksNothing(d driver.Driver, token driver.Token, what string) {
	t.Helper()
	if err := ops(d).Break(t.ctx, t.name, token); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("%s returned %v, not ErrNotHeld", what, err)
	}
}

// ends waits until a channel is closed.
func ends[T any](t *trial, c <-chan T, why string) {
	t.Helper()
	for end := time.After(t.slack); ; {
		select {
		case _, more := <-c:
			if !more {
				return
			}
		case <-end:
			t.Fatalf("%s", why)
		}
	}
}
