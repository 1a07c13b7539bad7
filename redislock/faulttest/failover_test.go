//go:build soak

package faulttest

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// TestTwoBelievers shows what a fail-over can do where there are more replicas than must acknowledge: one takes over
// that has not heard of the last hold, and lets another holder in while the one before still trusts its lease. The
// guarantees say so. A guard stops the old holder. TestFailover is about no hf.replicas.
func TestTwoBelievers(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	p.follow(t) // which acknowledges
	p.primary.AwaitReplicas(2)
	a := openWith(t, p.primary.Addr, "hf.replicas=1&hf.forget=go")
	verdict := a.Caps().Guarantees.Faults[driver.Failover]
	if verdict.Exclusion != driver.Breaks || !strings.Contains(verdict.Note, "Of more replicas than 1 the others may not know the hold") {
		t.Errorf("the driver says of a fail-over: %v exclusion, %s", verdict.Exclusion, verdict.Note)
	}
	p.link.Cut()
	before := acquire(t, a, "x", nil)
	p.failOver(t)
	second(t, before, acquire(t, openWith(t, p.replica.Addr, "hf.forget=go"), "x", nil))
}

// TestDemotedPrimary: a replica has taken over by hand, and the old primary, which nobody has told, serves
// those who are connected to it. With hf.replicas it grants and renews nothing, with min-replicas-to-write too; without,
// two believe, although the new primary waits until what it may have forgotten is over.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	verdict := func(c *holdfast.Client) driver.Verdict { return c.Caps().Guarantees.Faults[driver.Failover] }
	with, without := openWith(t, p.primary.Addr, "hf.replicas=1&"+remembers), openWith(t, p.primary.Addr, remembers)
	p.primary.Ask("CONFIG", "SET", "min-replicas-to-write", "1")
	stops := openWith(t, p.primary.Addr, remembers)
	p.primary.Ask("CONFIG", "SET", "min-replicas-to-write", "0")
	if v := verdict(stops); v.Exclusion != driver.Delays || v.Tokens != driver.Keeps {
		t.Errorf("with min-replicas-to-write the driver says of a fail-over: %+v", v)
	}
	for _, c := range []*holdfast.Client{with, without} {
		if v := verdict(c); v.Exclusion != driver.Breaks || !strings.Contains(v.Note, "old primary that lives on grants beside the new one") {
			t.Errorf("without min-replicas-to-write the driver says of a fail-over: %+v", v)
		}
	}
	p.replica.Follow("")
	next := openWith(t, p.replica.Addr, remembers)
	one := acquire(t, next, "one", nil)
	if lease, err := with.Mutex("one", nil).TryAcquire(t.Context()); err == nil {
		t.Errorf("P1: a primary that nobody follows any more granted %v beside %v", lease, one)
	} else if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the old primary knows what it cannot: %v", err)
	}
	two := acquire(t, without, "two", nil)
	second(t, two, acquire(t, next, "two", nil))
	p.primary.Ask("CONFIG", "SET", "min-replicas-to-write", "1")
	if lease, err := stops.Mutex("three", nil).TryAcquire(t.Context()); err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("P1: a primary that has lost its replicas granted %v, %v", lease, err)
	}
}
