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
	a := openWith(t, p.primary.Addr, "hf.replicas=1")
	verdict := a.Caps().Guarantees.Faults[driver.Failover]
	if verdict.Exclusion != driver.Breaks || !strings.Contains(verdict.Note, "Of more replicas than 1 the others may not know the hold") {
		t.Errorf("the driver says of a fail-over: %v exclusion, %s", verdict.Exclusion, verdict.Note)
	}
	p.link.Cut()
	before := acquire(t, a, "x", nil)
	p.failOver(t)
	second(t, before, acquire(t, openWith(t, p.replica.Addr, ""), "x", nil))
}

// TestDemotedPrimary: a replica has taken over by hand, and the old primary, which nobody has told, serves
// those who are connected to it. With hf.replicas it grants and renews nothing; without, two believe.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	with, without := openWith(t, p.primary.Addr, "hf.replicas=1"), openWith(t, p.primary.Addr, "")
	p.replica.Follow("")
	next := openWith(t, p.replica.Addr, "")
	one := acquire(t, next, "one", nil)
	if lease, err := with.Mutex("one", nil).TryAcquire(t.Context()); err == nil {
		t.Errorf("P1: a primary that nobody follows any more granted %v beside %v", lease, one)
	} else if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the old primary knows what it cannot: %v", err)
	}
	two := acquire(t, without, "two", nil)
	second(t, two, acquire(t, next, "two", nil))
}
