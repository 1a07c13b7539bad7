package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var breaker = needs{can: opOperator, Fencing: true}

// breaksCases are about an operator's break (P4), which the holder is told of (P2).
var breaksCases = []testCase{
	{name: "needs the token it saw", need: breaker, run: func(t *trial, a, b driver.Driver) {
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
	{name: "is told to the holder", need: breaker, kinds: kinds, run: func(t *trial, a, b driver.Driver) {
		g := t.have(a, t.hold())
		t.breakHold(b, g)
		t.told(a, g)
		t.breaksNothing(b, g.Token, "P4: breaking a hold twice")
		next := t.take(b, t.rival())
		t.after(next, g, "the hold before was broken")
		t.told(a, g)
		t.leaves(a, g, b, next)
	}},
	{name: "one of several", need: breaker, kinds: several, run: func(t *trial, a, b driver.Driver) {
		g1, g2 := t.take(a, t.beside()), t.take(b, t.hold())
		t.breakHold(b, g1)
		t.told(a, g1)
		// Where two holds have one token, the break may have meant both.
		if g1.Token != g2.Token || g1.Token == 0 {
			t.renew(b, g2)
			t.refused(a, t.rival(), "P4: breaking one of two holds freed the other")
		}
	}},
	{name: "hands the name on", need: needs{can: opOperator | opQueue, Fencing: true}, kinds: modes, run: func(t *trial, a, b driver.Driver) {
		g, r := t.behind(a, b)
		w := t.waitFor(b, r)
		t.breakHold(a, g)
		t.after(t.granted(w, t.poll, "P7: a waiter was not granted the broken name"), g, "the hold before was broken")
		t.told(a, g)
	}},
	{name: "ignores lock-delay", need: breaker, kinds: kinds, time: true, run: func(t *trial, a, b driver.Driver) {
		r := t.hold()
		r.LockDelay, r.MinHold = t.long, t.long
		g := t.have(a, r)
		t.breakHold(b, g)
		t.freed(b, g, "P4: a broken hold kept the name closed for its delays")
	}},
	// Losses may be missed, but what they say must be so.
	{name: "losses are true", need: needs{can: opOperator | opNotify, Fencing: true}, kinds: modes, run: func(t *trial, a, b driver.Driver) {
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
	{name: "close closes losses", need: needs{can: opNotify}, alone: func(t *trial) {
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

// told asserts that a renewal says that the hold was broken.
func (t *trial) told(d driver.Driver, g driver.Grant) {
	t.Helper()
	if r := t.renew1(d, g); r.Err == nil {
		t.Errorf("P2: a broken hold was renewed: its loss is silent")
	} else if !errors.Is(r.Err, driver.ErrBroken) {
		t.Errorf("P2: renewing a broken hold returned %v, not ErrBroken", r.Err)
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
