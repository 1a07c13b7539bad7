package drivertest

import (
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var breaker = needs{can: opOperator, Fencing: true}

var breaksCases = []testCase{
	{name: "absent or present", need: needs{can: opOperator}, run: breakNothing},
	{name: "frees the name at once", need: breaker, kinds: kinds, run: breakFrees},
	{name: "needs the token it saw", need: breaker, run: breakNeedsToken},
	{name: "is told to the holder", need: breaker, kinds: kinds, run: breakTold},
	{name: "one of several", need: breaker, kinds: several, run: breakOne},
	{name: "hands the name on",
		need: needs{can: opOperator | opQueue, Fencing: true}, kinds: modes, run: breakHandsOn},
	{name: "ignores lock-delay", need: breaker, kinds: kinds, time: true, run: breakIgnoresDelay},
	{name: "losses are true",
		need: needs{can: opOperator | opNotify, Fencing: true}, kinds: modes, run: lossesTrue},
	{name: "close closes losses", need: needs{can: opNotify}, run: lossesClosed},
}

func (t *trial) break1(d driver.Driver, name string, token driver.Token) error {
	return wrap.Forward{Driver: d}.Break(t.ctx, name, token)
}

// breakHold breaks a hold by its token, or, if it has none, by what Inspect shows in its place.
func (t *trial) breakHold(d driver.Driver, g driver.Grant) {
	t.Helper()
	token := g.Token
	if token == 0 && t.can.has(opOperator) {
		for _, h := range t.inspect(d).Holders {
			if h.Owner == g.Owner {
				token = h.Token
			}
		}
	}
	if err := t.break1(d, g.Name, token); err != nil {
		t.Fatalf("P4: breaking a hold by its token failed: %v", err)
	}
}

func breakNothing(t *trial) {
	d := t.open()
	if err := t.break1(d, t.name, 7); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: breaking an unused name returned %v, not ErrNotHeld", err)
	}
	t.freeNow(d, t.request(), "P4: breaking an unused name closed it")
}

func breakFrees(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	t.breakHold(b, g)
	t.freed(b, g, "P4: a broken hold did not free the name at once")
	if err := t.break1(b, t.name, g.Token); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: breaking a hold twice returned %v, not ErrNotHeld", err)
	}
}

func breakNeedsToken(t *trial) {
	a, b := t.open(), t.open()
	old := t.take(a, t.request())
	t.release(a, old)
	g := t.take(a, t.request())
	for _, token := range []driver.Token{old.Token, g.Token + 1, 0, -1} {
		if err := t.break1(b, t.name, token); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("P4: a break with token %d of a hold with token %d returned %v, not ErrNotHeld",
				token, g.Token, err)
		}
	}
	t.refused(b, t.request(), "P4: a break with another token freed the hold")
	t.renew(a, g)
}

func breakTold(t *trial) {
	a, b := t.open(), t.open()
	g := t.have(a, t.hold())
	t.breakHold(b, g)
	t.told(a, g)
	next := t.take(b, t.rival())
	t.told(a, g)
	if err := t.release1(a, g); err != nil && !driver.Gone(err) {
		t.Errorf("P4: releasing a broken hold returned %v; ErrBroken is right", err)
	}
	t.renew(b, next)
	t.refused(a, t.rival(), "P4: releasing a broken hold freed the next one")
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

func breakOne(t *trial) {
	a, b := t.open(), t.open()
	g1, g2 := t.take(a, t.beside()), t.take(b, t.hold())
	t.breakHold(b, g1)
	t.told(a, g1)
	// Where two holds have one token, the break may have meant both.
	if g1.Token != g2.Token || g1.Token == 0 {
		t.renew(b, g2)
		t.refused(a, t.rival(), "P4: breaking one of two holds freed the other")
	}
}

func breakHandsOn(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.rival())
	r := t.hold()
	t.queued(b, r)
	w := t.waitFor(b, r)
	t.breakHold(a, g)
	t.after(t.granted(w, t.poll, "P7: a waiter was not granted the broken name"), g, "the hold before was broken")
	t.told(a, g)
}

func breakIgnoresDelay(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.LockDelay, r.MinHold = t.long, t.long
	g := t.have(a, r)
	t.breakHold(b, g)
	t.freed(b, g, "P4: a broken hold kept the name closed for its delays")
}

// lossesTrue: notifications may be missed, but what they say must be so.
func lossesTrue(t *trial) {
	a, b := t.open(), t.open()
	losses := wrap.Forward{Driver: a}.Losses()
	if losses == nil {
		t.Fatalf("P10: the driver is a Notifier, and has no channel")
	}
	broken := t.take(a, t.hold())
	other := t.hold()
	other.Name = t.freshName()
	stays := t.take(a, other)
	t.breakHold(b, broken)
	wait := time.After(max(50*time.Millisecond, t.poll/4))
	for {
		select {
		case loss, ok := <-losses:
			if !ok {
				t.Fatalf("P2: the channel of losses was closed before the driver")
			}
			for _, owner := range loss.Owners {
				if owner == stays.Owner {
					t.Errorf("P2: a loss was told of a hold that lives")
				}
				if owner == broken.Owner && !errors.Is(loss.Err, driver.ErrBroken) {
					t.Errorf("P2: the loss of a broken hold was told as %v", loss.Err)
				}
			}
		case <-wait:
			t.told(a, broken)
			t.renew(a, stays)
			return
		}
	}
}

func lossesClosed(t *trial) {
	d := t.h.Open(t.TB)
	losses := wrap.Forward{Driver: d}.Losses()
	if err := d.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	deadline := time.After(t.slack)
	for {
		select {
		case _, ok := <-losses:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatalf("P9: Close did not close the channel of losses")
		}
	}
}
