package quorum_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// silentlyForgetful is a node that may come back without its votes and does not say when.
type silentlyForgetful struct{ driver.Driver }

func (f silentlyForgetful) Caps() driver.Caps {
	c := f.Driver.Caps()
	c.Guarantees.Faults = maps.Clone(c.Guarantees.Faults)
	c.Guarantees.Faults[driver.StoreRestart] = driver.Verdict{Exclusion: driver.Breaks}
	return c
}

// opens returns a node that has this driver.
func opens(name string, d driver.Driver) quorum.Node {
	return quorum.Node{Name: name, Open: func(context.Context) (driver.Driver, error) { return d, nil }}
}

// TestLateNodeIsRefused: P1: a node that is opened when a majority is there already, and that Open would refuse,
// does not vote. The error says why.
func TestLateNodeIsRefused(t *testing.T) {
	shared := memlock.NewStore(nil)
	for says, bad := range map[string]driver.Driver{
		"may forget its votes":      silentlyForgetful{memlock.NewStore(nil).Client()},
		"is the same store as node": shared.Client(),
	} {
		if d, err := quorum.Open(t.Context(), "s", []quorum.Node{opens("1", bad), opens("2", bad), opens("3", bad)}, nil); err == nil {
			d.Close()
			t.Fatalf("a node that %s is not refused at all", says)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("Open: %v, want %q", err, says)
		}
		wire := chaos.New(memlock.NewStore(nil).Client(), chaos.Options{})
		late := make(chan struct{})
		three := quorum.Node{Name: "three", Open: func(ctx context.Context) (driver.Driver, error) {
			select {
			case <-late:
				return bad, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		one, two := opens("one", shared.Client()), opens("two", wire)
		d, err := quorum.Open(t.Context(), "s", []quorum.Node{one, two, three}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wire.HoldRequests() // so that no majority is without the third
		close(late)
		for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
			_, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "a", TTL: time.Second})
			if err == nil {
				t.Errorf("a node that %s votes when it is opened late", says)
				break
			}
			if strings.Contains(err.Error(), says) {
				break
			}
			if time.Now().After(end) {
				t.Errorf("the error does not say that the node %s: %v", says, err)
				break
			}
		}
		wire.ReleaseRequests()
		d.Close()
	}
}

// TestOpenUnderContext: the error of an Open whose context has ended says what is wrong with each node.
func TestOpenUnderContext(t *testing.T) {
	silent := func(ctx context.Context) (driver.Driver, error) { <-ctx.Done(); return nil, ctx.Err() }
	refuses := func(context.Context) (driver.Driver, error) { return nil, errors.New("the password is wrong") }
	nodes := []quorum.Node{{Name: "one", Open: refuses}, {Name: "two", Open: silent}, {Name: "three", Open: silent}}
	for end, wait := time.Now().Add(bound), time.Millisecond; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := quorum.Open(ctx, "s", nodes, nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Open: %v", err)
		}
		if strings.Contains(err.Error(), "node one: the password is wrong") && strings.Contains(err.Error(), "node three: ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the error does not say what is wrong with each node: %v", err)
		}
	}
}
