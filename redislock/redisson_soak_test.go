//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

func as(owner string, req driver.Request) driver.Request {
	req.Owner = owner
	return req
}

// TestRedissonWithdrawal leaves a tombstone, which a release of a hold does not.
func TestRedissonWithdrawal(t *testing.T) {
	r := newRedissonTest(t)
	for _, req := range []driver.Request{mutex(2 * time.Minute), reader(2 * time.Minute), writing(2 * time.Minute), permits(2, 2, 2*time.Minute)} {
		r.all("FLUSHALL")
		g, err := r.Try(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		r.releases(driver.Grant{Request: req}, nil)
		r.refuses(req, driver.ErrNotHeld)
		gone := "holdfast:{n}:gone:" + ours
		if req.Mode != driver.Slot {
			gone = "holdfast:{n}:gone:" + escape(wire.Owner(ours))
		}
		r.lasts(gone, 2*time.Minute)
		stray := r.takes(as("stray", req), g.Valid)
		stray.Stray = true
		r.releases(stray, nil)
		r.refuses(as("stray", req), driver.ErrNotHeld)
		r.releases(driver.Grant{Request: as("never asked", req)}, nil)
		r.refuses(as("never asked", req), driver.ErrNotHeld)
		free := r.takes(as("another", req), g.Valid)
		r.releases(free, nil)
	}
}

// TestRedissonBatch renews and releases holds of all kinds in one go, each with its own outcome.
func TestRedissonBatch(t *testing.T) {
	r := newRedissonTest(t)
	var grants []driver.Grant
	for i := range 3 * batchSize {
		req := []driver.Request{mutex(time.Minute), reader(time.Minute), writing(time.Minute), permits(3, 2, time.Minute)}[i%4]
		req.Name, req.Owner = fmt.Sprint("n", i), fmt.Sprintf("%032x", i)
		grants = append(grants, r.takes(req, []time.Duration{time.Minute, longestTrust, longestTrust, time.Minute}[i%4]))
	}
	for i := range grants {
		if i%3 == 0 {
			r.do("DEL", grants[i].Name)
		}
	}
	renewals, errs := r.Renew(t.Context(), grants), r.Release(t.Context(), grants)
	for i := range grants {
		want := error(nil)
		if i%3 == 0 {
			want = driver.ErrNotHeld
		}
		if !errors.Is(renewals[i].Err, want) || !errors.Is(errs[i], want) {
			t.Fatalf("grant %d: %v and %v, not %v", i, renewals[i].Err, errs[i], want)
		}
	}
}

// TestRedissonWakes: waiters of each kind are woken by the channel. By polls alone the hand-overs would take
// far longer than they may here.
func TestRedissonWakes(t *testing.T) {
	r := newRedissonTest(t)
	open := func() *holdfast.Client {
		d, err := New(t.Context(), dialResp(t, r.server.Addr), &Options{Layout: Redisson})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b := open(), open()
	done := make(chan error, 1)
	go func() {
		for i, kind := range []func(*holdfast.Client) *holdfast.Lock{
			func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("m", nil) },
			func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("rw", nil).Write },
			func(c *holdfast.Client) *holdfast.Lock { return c.Semaphore("s", 1, nil) },
		} {
			for range int(hanging/time.Second) + 30 {
				lease, err := kind(a).Acquire(t.Context())
				if err != nil {
					done <- fmt.Errorf("kind %d: %w", i, err)
					return
				}
				next := make(chan error, 1)
				go func() {
					lease, err := kind(b).Acquire(t.Context())
					if err == nil {
						err = lease.Release()
					}
					next <- err
				}()
				time.Sleep(time.Millisecond) // mostly it waits by then
				if err := errors.Join(lease.Release(), <-next); err != nil {
					done <- fmt.Errorf("kind %d: %w", i, err)
					return
				}
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hanging):
		t.Error("270 hand-overs are not done: waiters are not woken")
	}
}

// TestRedissonGuarantees: what the guarantees say that programs in Java can break is so, and what they do not say is not.
func TestRedissonGuarantees(t *testing.T) {
	r := newRedissonTest(t)
	said := r.Caps().Guarantees.Summary
	for _, want := range []string{"by their hosts' for those in Java", "lockWatchdogTimeout is below 30 s"} {
		if !strings.Contains(said, want) {
			t.Errorf("the guarantees do not say %q", want)
		}
	}

	for _, deployment := range []deployment{oneServer, withSentinels, clustered} {
		for fault, v := range redissonGuarantees(guaranteesOf(deployment), RedissonLock).Faults {
			if strings.Contains(v.Note, "token") || v.Tokens != driver.Impossible {
				t.Errorf("there are no tokens, and of %q in a deployment %v it is said: %+v", fault, deployment, v)
			}
		}
	}

	// A reader in Java renews: that sets the hash to its watchdog. Then it dies.
	g := r.takes(reader(time.Minute), longestTrust)
	renewal := func(watchdog string) { r.all("HSET n "+java+" 1", "PEXPIRE n "+watchdog) }
	renewal("30000")
	r.lasts("n", longestTrust) // as long as ours is trusted
	r.renews(g, longestTrust, nil)
	renewal("100")
	time.Sleep(150 * time.Millisecond)
	intruder := r.takes(as("a writer", writing(time.Minute)), longestTrust)
	r.renews(g, 0, driver.ErrNotHeld) // told at its next renewal
	r.releases(intruder, nil)
}
