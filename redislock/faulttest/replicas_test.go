//go:build soak

package faulttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// pair is a primary with a replica, and the link between the two.
type pair struct {
	primary, replica *testserver.Redis
	link             *chaos.Proxy
}

func startPair(t testing.TB) pair {
	t.Helper()
	p := pair{primary: testserver.StartRedis(t, testserver.RedisOptions{})}
	p.replica, p.link = p.follow(t)
	p.primary.AwaitReplicas(1)
	return p
}

// follow starts one more replica, with a link of its own.
func (p pair) follow(t testing.TB) (*testserver.Redis, *chaos.Proxy) {
	t.Helper()
	replica, link := testserver.StartRedis(t, testserver.RedisOptions{}), chaos.StartProxy(t, p.primary.Addr)
	replica.Follow(link.Addr)
	return replica, link
}

// failOver kills the primary, when nothing more arrives at the replica, which takes over.
func (p pair) failOver(t testing.TB) {
	t.Helper()
	p.link.Cut()
	p.primary.Kill()
	t.Cleanup(p.primary.Start) // for clients that are closed after the test
	p.replica.Follow("")
}

// openWith opens a client with more parameters in the URL.
func openWith(t testing.TB, addr, params string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), url(addr)+"?"+params)
	testserver.Must(t, err)
	t.Cleanup(func() { c.Close() }) // its server may be gone
	return c
}

// ways are the ways of keeping locks. A server that takes over knows what it has acknowledged, so none need wait.
var ways = []string{"hf.replicas=1&hf.forget=go", "hf.replicas=1&hf.forget=go&hf.layout=setnx"}

// lag is how late the replica hears of everything.
const lag = 30 * time.Millisecond

// TestReplicaTakesOver: the replica hears of everything late, and takes over when it has acknowledged
// something. It knows that, so the next holder comes when the one before has stopped.
func TestReplicaTakesOver(t *testing.T) {
	o := &holdfast.Options{TTL: 2 * time.Second, RenewEvery: -1}
	get := func(t *testing.T, c *holdfast.Client) *holdfast.Lease {
		lease, err := patiently(t, c, o)
		testserver.Must(t, err)
		return lease
	}
	cases := map[string]func(t *testing.T, p pair, c *holdfast.Client) *holdfast.Lease{
		"a grant": func(t *testing.T, _ pair, c *holdfast.Client) *holdfast.Lease { return get(t, c) },
		"a renewal": func(t *testing.T, _ pair, c *holdfast.Client) *holdfast.Lease {
			lease := get(t, c)
			before := lease.ValidUntil()
			time.Sleep(500 * time.Millisecond)
			until(t, "a renewal", func() bool { return lease.Renew(t.Context()) == nil })
			if !lease.ValidUntil().After(before) {
				t.Error("a renewal that was acknowledged does not extend the lease")
			}
			return lease
		},
		"a winner out of the queue": func(t *testing.T, p pair, c *holdfast.Client) *holdfast.Lease {
			return winner(t, openWith(t, p.primary.Addr, ""), c, o)
		},
	}
	for _, params := range ways {
		for what, take := range cases {
			t.Run(what+", "+params, func(t *testing.T) {
				t.Parallel()
				judged(t, func() bool { return takesOver(t, params, take) })
			})
		}
	}
}

// takesOver lets a replica take over that has acknowledged a hold. It returns false if the lease ended
// before the replica was asked.
func takesOver(t *testing.T, params string, take func(*testing.T, pair, *holdfast.Client) *holdfast.Lease) bool {
	t.Helper()
	p := startPair(t)
	a := openWith(t, p.primary.Addr, params)
	p.link.Delay(chaos.ToClient, lag)
	before := take(t, p, a)
	p.failOver(t)
	b := openWith(t, p.replica.Addr, strings.TrimPrefix(params, "hf.replicas=1&"))
	if _, err := b.Mutex("x", nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		if before.Err() != nil {
			return false
		}
		t.Fatalf("P1: the replica that has taken over does not know what it has acknowledged: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	after, err := b.Mutex("x", nil).Acquire(ctx)
	testserver.Must(t, err)
	if !errors.Is(before.Err(), holdfast.ErrLost) {
		t.Errorf("P1: the next holder came, and the one before says %v", before.Err())
	}
	if after.Token() <= before.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), before.Token())
	}
	return true
}

// judged calls try until it could judge. On a machine that stands still for as long as a lease lasts, it
// cannot; that must not pass for a success.
func judged(t *testing.T, try func() bool) {
	t.Helper()
	const attempts = 5
	for range attempts {
		if try() {
			return
		}
	}
	t.Fatalf("the machine stood still until the lease was over, %d times", attempts)
}

// patiently acquires a lock, again if the machine was so slow that the replica seemed to be.
func patiently(t testing.TB, c *holdfast.Client, o *holdfast.Options) (*holdfast.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		lease, err := c.Mutex("x", o).Acquire(ctx)
		if short := (*redislock.UnacknowledgedError)(nil); !errors.As(err, &short) || ctx.Err() != nil {
			return lease, err
		}
	}
}

// winner returns the lease of one who waits until another, who has the lock, releases it.
func winner(t testing.TB, first, second *holdfast.Client, o *holdfast.Options) *holdfast.Lease {
	t.Helper()
	held := acquire(t, first, "x", nil)
	got := make(chan *holdfast.Lease, 1)
	go func() {
		lease, err := patiently(t, second, o)
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	waits(t, second, "x")
	if err := held.Release(); err != nil {
		t.Error(err)
	}
	if lease := <-got; lease != nil {
		return lease
	}
	t.FailNow()
	return nil
}

// waits returns when somebody waits for the name, where the store has a queue.
func waits(t testing.TB, c *holdfast.Client, name string) {
	t.Helper()
	if !c.Caps().Fair { // no store here has a queue that is not fair
		return
	}
	until(t, "somebody waits", func() bool {
		info, err := c.Inspect(t.Context(), name)
		return err == nil && len(info.Waiters) > 0
	})
}

// TestReplicaStopped: while the replica stands still nothing is granted. The error says so in bounded time,
// nothing is left behind, and when the replica goes on locks do.
func TestReplicaStopped(t *testing.T) {
	for _, params := range ways {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			p := startPair(t)
			a, plain := openWith(t, p.primary.Addr, params), openWith(t, p.primary.Addr, strings.TrimPrefix(params, "hf.replicas=1&"))
			p.replica.Pause()
			for what, take := range map[string]func(context.Context) error{
				"a try": func(ctx context.Context) error {
					_, err := a.Mutex("x", nil).TryAcquire(ctx)
					return err
				},
				"an acquire": func(ctx context.Context) error {
					_, err := a.Mutex("x", &holdfast.Options{TTL: time.Second}).Acquire(ctx)
					return err
				},
				"one with a minimum hold": func(ctx context.Context) error {
					_, err := a.Mutex("x", &holdfast.Options{MinHold: time.Minute}).TryAcquire(ctx)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := take(ctx)
				cancel()
				short := (*redislock.UnacknowledgedError)(nil)
				if !errors.As(err, &short) || short.Acknowledged != 0 || short.Replicas != 1 || !strings.Contains(err.Error(), "0 of 1 replicas") {
					t.Fatalf("%s that no replica acknowledges returned %v", what, err)
				}
				if errors.Is(err, holdfast.ErrUncertain) {
					t.Errorf("%s that was undone is called uncertain: %v", what, err)
				}
				if info, err := a.Inspect(t.Context(), "x"); err != nil || !info.Idle() {
					t.Fatalf("%s has left %+v, %v", what, info, err)
				}
				lease, err := plain.Mutex("x", nil).TryAcquire(t.Context())
				if err != nil {
					t.Fatalf("P6: after %s the name is not free: %v", what, err)
				}
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
			p.replica.Resume()
			until(t, "a grant", func() bool {
				lease, err := a.Mutex("x", nil).TryAcquire(t.Context())
				return err == nil && lease.Release() == nil
			})
		})
	}
}

// TestUnacknowledgedRenewal: a renewal that no replica acknowledges does not extend the lease, which is told
// lost by its trust deadline, and says why.
func TestUnacknowledgedRenewal(t *testing.T) {
	for _, params := range ways {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			judged(t, func() bool { return unacknowledgedRenewal(t, params) })
		})
	}
}

// unacknowledgedRenewal returns false if the lease ended before a renewal was refused.
func unacknowledgedRenewal(t *testing.T, params string) bool {
	t.Helper()
	p := startPair(t)
	doubt := make(chan error, 100)
	u := url(p.primary.Addr) + "?" + params
	d := openDriver(t, u)
	c, err := holdfast.New(d, &holdfast.ClientOptions{Events: holdfast.Events{InDoubt: func(e holdfast.Event) {
		select {
		case doubt <- e.Err:
		default:
		}
	}}})
	testserver.Must(t, err)
	t.Cleanup(func() { c.Close() })
	lease, err := patiently(t, c, &holdfast.Options{TTL: 4 * time.Second})
	testserver.Must(t, err)
	p.replica.Pause()
	until(t, "a renewal is refused", func() bool { // it may have acknowledged one before it was stopped
		err = lease.Renew(t.Context())
		return err != nil
	})
	short := (*redislock.UnacknowledgedError)(nil)
	if errors.Is(err, holdfast.ErrLost) {
		p.replica.Resume()
		return false
	}
	if !errors.As(err, &short) {
		t.Fatalf("a renewal that no replica acknowledges returned %v", err)
	}
	deadline := lease.ValidUntil()
	if err := <-doubt; !errors.As(err, &short) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the lease is in doubt because of %v", err)
	}
	<-lease.Done()
	if lease.ValidUntil().After(deadline.Add(100 * time.Millisecond)) { // a renewal counts for more
		t.Errorf("P2: renewals that no replica acknowledged have moved the trust deadline from %v to %v", deadline, lease.ValidUntil())
	}
	if err := lease.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("P2: the loss says %v", err)
	}
	p.replica.Resume()
	return true
}

func openDriver(t testing.TB, raw string) driver.Driver {
	t.Helper()
	d, err := driver.Open(t.Context(), parse(t, raw))
	testserver.Must(t, err)
	return d
}
