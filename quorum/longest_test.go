package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// told is a node that other clients have told of an hour as their longest TTL.
type told struct{ *voter }

func (told) Life(context.Context, time.Duration) (vote.Life, bool, time.Duration, error) {
	return 1, false, time.Hour, nil
}

// ticking is a clock that a test sets.
type ticking struct{ now atomic.Int64 }

func (c *ticking) Now() driver.Instant { return driver.Instant(c.now.Load()) }

// TestLongestOfAll: P1: nodes that may have forgotten votes do not count until the longest TTL of all clients is
// over, although this client's own is shorter.
func TestLongestOfAll(t *testing.T) {
	clock := &ticking{}
	clock.now.Store(1)
	var nodes []driver.Driver
	for range 3 {
		v := &voter{Driver: memlock.NewStore(nil).Client()}
		v.life.Store(1)
		nodes = append(nodes, told{v})
	}
	d, err := quorum.New(nodes, &quorum.Options{MaxTTL: time.Second, NodeTimeout: bound, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	try := func(owner string) error {
		_, err := d.Try(t.Context(), driver.Request{Name: owner, Owner: owner, TTL: time.Second})
		return err
	}
	var held *driver.HeldError
	if err := try("a"); !errors.As(err, &held) || held.ExpiresIn < 59*time.Minute {
		t.Errorf("Try of nodes that are new: %v", err)
	}
	clock.now.Add(int64(30 * time.Minute))
	if err := try("b"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try before the longest TTL of all clients is over: %v", err)
	}
	clock.now.Add(int64(31 * time.Minute))
	if err := try("c"); err != nil {
		t.Errorf("Try after that: %v", err)
	}
}
