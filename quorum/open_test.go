package quorum_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// opens returns a node that has this driver.
func opens(name string, d driver.Driver) quorum.Node {
	return quorum.Node{Name: name, Open: func(context.Context) (driver.Driver, error) { return d, nil }}
}

// TestLateNodeIsRefused: P1: a node that is opened when a majority is there already, and that Open would refuse,
// does not vote. The error says why.
func TestLateNodeIsRefused(t *testing.T) {
	shared := memlock.NewStore(nil)
	for says, bad := range map[string]driver.Driver{
		"may forget its votes":      forgetful{memlock.NewStore(nil).Client()},
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
		await(t, "an error that says that the node "+says, func() bool {
			_, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "a", TTL: time.Second})
			if err == nil {
				t.Fatalf("a node that %s votes when it is opened late", says)
			}
			return strings.Contains(err.Error(), says)
		})
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

// TestNotDurable: P1: a node that is said to be durable, and says that it is not, is refused.
func TestNotDurable(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		nodes := make([]driver.Driver, 3)
		for i := range nodes {
			v := newVoter()
			v.forgets = forgets && i == 2
			nodes[i] = v
		}
		d, err := quorum.New(nodes, &quorum.Options{Durable: true})
		if err == nil {
			d.Close()
		}
		if refused := err != nil && strings.Contains(err.Error(), "said to be durable"); refused != forgets {
			t.Errorf("of a node that forgets: %v: %v", forgets, err)
		}
	}
}

// told is a node that other clients have told of an hour as their longest TTL.
type told struct{ *voter }

func (told) Life(context.Context, time.Duration) (driver.Life, bool, time.Duration, error) {
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
		nodes = append(nodes, told{newVoter()})
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

// TestInitInUse: P1: nodes of which one shows a hold are not said to be new. When it is released, they are.
func TestInitInUse(t *testing.T) {
	var nodes []driver.Driver
	for range 3 {
		nodes = append(nodes, newVoter())
	}
	d, err := quorum.New(nodes, &quorum.Options{NodeTimeout: bound})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	g, err := nodes[1].Try(t.Context(), driver.Request{Name: "orders/42", Owner: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := quorum.Init(t.Context(), d); err == nil || !strings.Contains(err.Error(), `"orders/42" is held`) {
		t.Errorf("Init of nodes in use: %v", err)
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "b", TTL: time.Second}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("after an Init that was refused the nodes count: %v", err)
	}
	if err := nodes[1].Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	// The votes of the attempt are being taken back.
	await(t, "Init of nodes that are free", func() bool { return quorum.Init(t.Context(), d) == nil })
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "c", TTL: time.Second}); err != nil {
		t.Errorf("after Init: %v", err)
	}
}
