package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

var exclusiveCases = []testCase{
	{name: "one holder", run: oneHolder},
	{name: "free after release", run: freeAfterRelease},
	{name: "names are independent", run: independentNames},
	{name: "a grant arrives with time to work", kinds: kinds, run: timeToWork},
	{name: "held error tells the truth", kinds: kinds, run: heldErrorTellsTruth},
	{name: "try takes no place", run: tryTakesNoPlace},
	{name: "ended context takes nothing", kinds: modes, run: endedContext},
}

func oneHolder(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.request())
	t.refused(b, t.request(), "P1: a second client was granted a held name")
	t.refused(a, t.request(), "P1: a second owner of the holder's client was granted the held name")
}

func freeAfterRelease(t *trial) {
	a, b := t.open(), t.open()
	for range 3 {
		t.release(a, t.take(a, t.request()))
		t.freeNow(b, t.request(), "P4: a released name is not free at once")
	}
}

func independentNames(t *trial) {
	d := t.open()
	t.take(d, t.request())
	other := t.request()
	other.Name = t.freshName()
	t.take(d, other)
}

// timeToWork: the TTL counts from a request of the caller, so when a grant arrives no more
// of the TTL has passed than the call took. Since may be older than the call if the TTL is
// that of a session.
func timeToWork(t *trial) {
	d := t.open()
	g := t.have(d, t.hold())
	if left := g.Since.Add(g.Valid).Sub(t.clock.Now()); left < t.long/4 {
		t.Errorf("P1: of a fresh hold of %v only %v are left", t.long, left)
	}
}

func heldErrorTellsTruth(t *trial) {
	a, b := t.open(), t.open()
	r := t.hold()
	r.Note = longNote
	g := t.have(a, r)
	_, err := t.try1(b, t.rival())
	if !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Try of a held name returned %v", err)
	}
	var held *driver.HeldError
	if !errors.As(err, &held) {
		return // hints are optional
	}
	switch {
	case held.Name != "" && held.Name != t.name:
		t.Errorf("P10: HeldError names %q, not %q", held.Name, t.name)
	case held.Note != "" && held.Note != r.Note:
		t.Errorf("P10: HeldError has note %q, not %q", held.Note, r.Note)
	case held.Token != 0 && held.Token != g.Token:
		t.Errorf("P3: HeldError has token %d, the hold has %d", held.Token, g.Token)
	case held.ExpiresIn < 0 || held.ExpiresIn > t.long+t.caps.Guarantees.Lateness+time.Second:
		t.Errorf("P5: HeldError says that a hold of %v opens in %v", t.long, held.ExpiresIn)
	}
}

func tryTakesNoPlace(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.refused(b, t.request(), "P1: a second client was granted a held name")
	t.release(a, g)
	t.freeNow(a, t.request(), "P6: a Try that was refused still waits for the name")
}

func endedContext(t *trial) {
	a, b := t.open(), t.open()
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	r := t.hold()
	t.track(a, r)
	g, err := a.Try(ctx, r)
	if err == nil {
		t.release(a, g) // allowed: a store without I/O need not check the context
	} else if errors.Is(err, driver.ErrUncertain) {
		if g.Owner != r.Owner {
			t.Errorf("P6: an uncertain Try returned no grant to withdraw")
		}
		if err := t.release1(a, g); err != nil && !driver.Gone(err) {
			t.Errorf("P6: withdrawing an uncertain Try failed: %v", err)
		}
	}
	t.freeNow(b, t.rival(), "P6: a Try with an ended context took the name")
}
