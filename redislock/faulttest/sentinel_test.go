//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// openURL opens a client, which is closed with the test.
func openURL(t testing.TB, raw string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func sentinelURL(s *testserver.Sentinels) string {
	return "redis+sentinel://" + s.Addrs() + "/" + testserver.PrimaryName
}

// crowd is clients of which each holds a lock of its own, and whose goroutines take a name of all and
// names of few again and again.
type crowd struct {
	testing.TB
	clients []*holdfast.Client
	kept    []*holdfast.Lease // of each client
	served  []atomic.Int64    // how often each goroutine had its lock
	lost    atomic.Int64      // leases that said so
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// crowdTTL is long enough for a fail-over.
const crowdTTL = 20 * time.Second

// startCrowd starts n clients. It renews often, so that each holder soon asks the new primary.
func startCrowd(t testing.TB, url string, n int) *crowd {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &crowd{TB: t, served: make([]atomic.Int64, 2*n), stop: stop}
	t.Cleanup(func() { c.stop(); c.work.Wait() })
	for range n {
		c.clients = append(c.clients, openURL(t, url))
	}
	for i, client := range c.clients {
		c.kept = append(c.kept, c.keep(client, i))
		for j, name := range []string{"crowd/all", fmt.Sprint("crowd/few/", i%5)} {
			c.work.Go(func() { c.use(ctx, client, name, &c.served[2*i+j]) })
		}
	}
	return c
}

func (c *crowd) keep(client *holdfast.Client, i int) *holdfast.Lease {
	c.Helper()
	return acquire(c, client, fmt.Sprint("crowd/own/", i), &holdfast.Options{TTL: crowdTTL, RenewEvery: 500 * time.Millisecond})
}

// use takes the lock again and again. During a fail-over there must be errors.
func (c *crowd) use(ctx context.Context, client *holdfast.Client, name string, served *atomic.Int64) {
	lock := client.Mutex(name, &holdfast.Options{TTL: 2 * time.Second})
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		time.Sleep(time.Millisecond)
		if err := lease.Release(); errors.Is(err, holdfast.ErrLost) {
			c.lost.Add(1)
		}
		served.Add(1)
	}
}

// goesOn fails the test unless every goroutine gets its lock twice from now on (P7).
func (c *crowd) goesOn() {
	c.Helper()
	before := make([]int64, len(c.served))
	for i := range c.served {
		before[i] = c.served[i].Load()
	}
	for i := range c.served {
		until(c, fmt.Sprintf("P7: goroutine %d of client %d gets its lock", i%2, i/2), func() bool {
			return c.served[i].Load() >= before[i]+2
		})
	}
}

// judge fails the test unless each lease that is trusted is in the store, after it was renewed: a loss
// must be told (P2).
func (c *crowd) judge(witness *holdfast.Client) (lost int) {
	c.Helper()
	for i, lease := range c.kept {
		err := lease.Renew(c.Context())
		for ; err != nil && lease.Err() == nil; err = lease.Renew(c.Context()) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			lost++
			if !errors.Is(lease.Err(), holdfast.ErrLost) {
				c.Errorf("P2: lease %d could not be renewed (%v), and says %v", i, err, lease.Err())
			}
			continue
		}
		info, err := witness.Inspect(c.Context(), lease.Name())
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); { // it has to follow, too
			info, err = witness.Inspect(c.Context(), lease.Name())
		}
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != lease.Token() {
			c.Errorf("P2: lease %d is trusted, and the store shows %+v, %v", i, info, err)
		}
	}
	return lost
}

// end ends the goroutines and releases what is held.
func (c *crowd) end() {
	c.Helper()
	c.stop()
	c.work.Wait()
	for i, lease := range c.kept {
		if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
			c.Errorf("releasing lease %d: %v", i, err)
		}
	}
}

// TestSentinelLoses: a fail-over loses a hold that was acknowledged and not replicated, and the new
// primary's clock is behind. So two holders trust their leases, with tokens in the wrong order, until
// the first one renews. The driver says so.
func TestSentinelLoses(t *testing.T) {
	t.Parallel()
	primary := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})
	link := chaos.StartProxy(t, primary.Addr)
	replica := testserver.StartRedis(t, testserver.RedisOptions{Clock: true})
	replica.Clock.Set(-time.Minute)
	if got := replica.Ask("REPLICAOF", "127.0.0.1", port(link.Addr)); got != "OK" {
		t.Fatal(got)
	}
	// The sentinels do not correct the replica's address of its primary before their time-out.
	s := testserver.WatchBySentinels(t, primary, []*testserver.Redis{replica}, "sentinel failover-timeout "+testserver.PrimaryName+" 120000")
	a := openURL(t, sentinelURL(s))
	if verdict := a.Caps().Guarantees.Faults[driver.Failover]; verdict.Exclusion != driver.Breaks || verdict.Tokens != driver.Breaks {
		t.Errorf("the driver says of %q: exclusion %v, tokens %v", driver.Failover, verdict.Exclusion, verdict.Tokens)
	}
	link.Cut()
	before := acquire(t, a, "x", &holdfast.Options{RenewEvery: -1})
	primary.Kill()
	// Suppose that two sentinels ask for votes at the same time, and neither gets enough. With their long
	// time-out they would not try again within four minutes.
	for elected := time.Now().Add(10 * time.Second); s.Primary() == nil || s.Primary() == primary; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(elected) {
			s.Failover()
			break
		}
	}
	s.AwaitPrimary(primary)
	after := acquire(t, openURL(t, sentinelURL(s)), "x", nil)
	if before.Err() != nil || after.Err() != nil {
		t.Errorf("the driver says that a fail-over breaks exclusion, and it did not: %v, %v", before.Err(), after.Err())
	}
	if after.Token() >= before.Token() {
		t.Errorf("the driver says that a fail-over breaks the order of tokens, and %d came after %d", after.Token(), before.Token())
	}
	err := before.Renew(t.Context())
	for ; err != nil && before.Err() == nil; err = before.Renew(t.Context()) { // its connection must be made anew
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("P2: a renewal of a hold that the new primary does not know: %v", err)
	}
}

// TestSentinelReadOnly: an operator makes the primary a replica by hand, and the sentinels do not know
// it yet. The client leaves the server, says why, and comes back when it is the primary again.
func TestSentinelReadOnly(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
	primary := s.Servers[0]
	c := openURL(t, sentinelURL(s))
	kept := acquire(t, c, "kept", nil)
	if got := primary.Ask("REPLICAOF", "127.0.0.1", "1"); got != "OK" {
		t.Fatal(got)
	}
	if _, err := c.Mutex("new", nil).TryAcquire(t.Context()); err == nil || errors.Is(err, holdfast.ErrUncertain) {
		t.Errorf("the first write on a replica returned %v", err)
	}
	until(t, "the client leaves the replica", func() bool { return primary.Ask("PUBSUB", "CHANNELS", "holdfast:*") == "" })
	until(t, "the client says why", func() bool {
		_, err := c.Mutex("new", nil).TryAcquire(t.Context())
		return err != nil && strings.Contains(err.Error(), "fail-over may be under way")
	})
	if err := kept.Err(); err != nil {
		t.Errorf("a lease that cannot be renewed yet says %v", err)
	}
	if got := primary.Ask("REPLICAOF", "NO", "ONE"); got != "OK" {
		t.Fatal(got)
	}
	until(t, "the client is back", func() bool { return kept.Renew(t.Context()) == nil })
	if err := kept.Release(); err != nil {
		t.Error(err)
	}
}

// TestSentinelPassword: servers and sentinels want the same password. A name that the sentinels do not
// know, a wrong password and sentinels that are gone are told.
func TestSentinelPassword(t *testing.T) {
	t.Parallel()
	const password = "s3cret"
	s := testserver.StartSentinels(t, testserver.SentinelOptions{
		Replicas: 1, Args: []string{"--requirepass", password, "--masterauth", password}, Password: password,
	})
	hosts := s.Addrs()
	c := openURL(t, "redis+sentinel://:"+password+"@"+hosts+"/"+testserver.PrimaryName)
	if err := acquire(t, c, "x", nil).Release(); err != nil {
		t.Error(err)
	}
	for raw, says := range map[string]string{
		"redis+sentinel://:" + password + "@" + hosts + "/another":                             "another",
		"redis+sentinel://:wrong@" + hosts + "/" + testserver.PrimaryName:                      "WRONGPASS",
		"redis+sentinel://" + hosts + "/" + testserver.PrimaryName:                             "NOAUTH",
		"redis+sentinel://:" + password + "@127.0.0.1:1,127.0.0.1:2/" + testserver.PrimaryName: "refused",
	} {
		c, err := holdfast.Open(t.Context(), raw)
		if err == nil {
			c.Close()
			t.Errorf("%s was opened", raw)
		} else if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: %v does not say %q, or shows the password", raw, err, says)
		}
	}
	// One sentinel is enough, and holders need none.
	s.Sentinels[0].Kill()
	s.Sentinels[1].Kill()
	if err := acquire(t, openURL(t, "redis+sentinel://:"+password+"@"+hosts+"/"+testserver.PrimaryName), "x", nil).Release(); err != nil {
		t.Error(err)
	}
	s.Sentinels[2].Kill()
	if err := acquire(t, c, "x", nil).Release(); err != nil {
		t.Errorf("without sentinels: %v", err)
	}
}
