package etcdlock

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
)

// TestHandedOver: goroutines of two clients want one name. Holds are handed over inside a
// process, and a guard admits each of them (P3).
func TestHandedOver(t *testing.T) {
	server := shared(t)
	var gate fence.Gate
	var inside sync.Mutex // TryLock must never fail
	var last driver.Token
	var holds, passed atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		locks := openLocks(t, "etcd://"+server.Addrs())
		for range 20 {
			wg.Go(func() {
				for range 25 {
					lease, err := locks.Mutex("hot", nil).Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if !inside.TryLock() {
						t.Error("P1: two hold the name")
						return
					}
					if lease.Token() <= last {
						t.Errorf("P3: token %d after %d", lease.Token(), last)
					}
					if lease.Token()>>10 == last>>10 {
						passed.Add(1)
					}
					last = lease.Token()
					holds.Add(1)
					if err := gate.Admit(lease.Token(), driver.Exclusive); err != nil {
						t.Errorf("P3: %v", err)
					}
					inside.Unlock()
					if err := lease.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if passed.Load() < holds.Load()/2 {
		t.Errorf("of %d holds %d were handed over in their process", holds.Load(), passed.Load())
	}
}

// passedOn returns a lease on a name whose hold was handed over to it in its process.
func passedOn(t *testing.T, locks *holdfast.Client, name string) *holdfast.Lease {
	t.Helper()
	const waiters = 5
	lock := locks.Mutex(name, nil)
	for {
		// Only a hold that is asked for while others wait can be handed over.
		first, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases := make(chan *holdfast.Lease, waiters)
		for range waiters {
			go func() {
				lease, err := lock.Acquire(t.Context())
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				leases <- lease
			}()
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		var last *holdfast.Lease
		for i := range waiters {
			lease := <-leases
			if lease == nil {
				t.FailNow()
			}
			if last != nil && last.Token()>>10 == lease.Token()>>10 {
				go func() { // the others wait for this one
					for range waiters - i - 1 {
						if next := <-leases; next != nil {
							next.Release()
						}
					}
				}()
				return lease
			}
			last = lease
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestHandOverIsRecorded: the store gets to know the token of a hold that was handed over,
// and everything that is done with the hold goes by it.
func TestHandOverIsRecorded(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	other := dial(t, server.Addrs(), nil)
	shows := func(name string, token driver.Token, mode driver.Mode, note string) {
		t.Helper()
		info, err := other.Inspect(t.Context(), name)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != token || info.Holders[0].Mode != mode || info.Holders[0].Note != note {
			t.Errorf("P3: %s is shown as %+v, %v; token %d, %v, %q are right", name, info, err, token, mode, note)
		}
	}
	wide := func(name string) driver.Grant {
		req := request(name)
		req.Tokens, req.Note = 100, "a note"
		g := take(t, c, req)
		if g.Block != 100 || g.Token%1024 != 0 {
			t.Fatalf("P3: 100 tokens were asked for, the grant has %d from %d on", g.Block, g.Token)
		}
		g.Token, g.HandedOver = g.Token+7, true
		return g
	}
	t.Run("renewed", func(t *testing.T) {
		g := wide("renewed")
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid != g.TTL {
			t.Fatalf("P2: it is renewed as %+v", r)
		}
		shows(g.Name, g.Token, driver.Exclusive, "a note")
		g.Token += 92
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		shows(g.Name, g.Token, driver.Exclusive, "a note")
		for _, stale := range []driver.Token{g.Token - 99, g.Token - 92, g.Token - 1, g.Token + 1} {
			if err := other.Break(t.Context(), g.Name, stale); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("P4: a break with %d of a hold with token %d: %v", stale, g.Token, err)
			}
		}
		if err := other.Break(t.Context(), g.Name, g.Token); err != nil {
			t.Fatalf("P4: %v", err)
		}
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, driver.ErrBroken) {
			t.Errorf("P2: a hold that was broken is renewed: %v", r.Err)
		}
	})
	t.Run("downgraded", func(t *testing.T) {
		g := wide("downgraded")
		shared, err := c.Downgrade(t.Context(), g)
		if err != nil || shared.Token != g.Token || shared.Mode != driver.Shared {
			t.Fatalf("P3: a downgrade of %+v gives %+v, %v", g, shared, err)
		}
		shows(g.Name, g.Token, driver.Shared, "a note")
		reader := request(g.Name)
		reader.Mode = driver.Shared
		if next, err := other.Try(t.Context(), reader); err != nil || next.Token <= g.Token {
			t.Errorf("P3: a reader after a writer with token %d: %d, %v", g.Token, next.Token, err)
		}
	})
	t.Run("released", func(t *testing.T) {
		g := wide("released")
		g.Token += 92 // the last of its block
		release(t, c, g)
		if next := take(t, other, request(g.Name)); next.Token <= g.Token {
			t.Errorf("P3: token %d after %d", next.Token, g.Token)
		}
	})
	t.Run("through the client", func(t *testing.T) {
		locks := openLocks(t, "etcd://"+server.Addrs())
		lease := passedOn(t, locks, "through")
		defer lease.Release()
		observer := openLocks(t, "etcd://"+server.Addrs())
		if err := observer.CheckSequencer(t.Context(), lease.Sequencer()); err != nil {
			t.Errorf("P3: %v", err)
		}
		if r, err := c.main.etcd.Txn(t.Context()).If(Compare(lease)).Commit(); err != nil || !r.Succeeded {
			t.Errorf("P3: Compare of a hold that was handed over is not true: %v", err)
		}
	})
}

// TestContended: a grant says that others were queued behind it where the look at what is
// before it has shown them.
func TestContended(t *testing.T) {
	server := shared(t)
	var clients [4]*client
	for i := range clients {
		clients[i] = dial(t, server.Addrs(), nil)
	}
	g := take(t, clients[0], request("contended"))
	if g.Contended {
		t.Error("a grant of a free name is contended")
	}
	var reqs [4]driver.Request
	for i := 1; i < len(reqs); i++ {
		reqs[i] = request("contended")
		line(t, clients[i], reqs[i])
	}
	for i := 1; i < len(reqs); i++ {
		release(t, clients[i-1], g)
		var err error
		for g, err = clients[i].Enqueue(t.Context(), reqs[i]); errors.Is(err, driver.ErrHeld); {
			g, err = clients[i].Wait(t.Context(), reqs[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		// Enqueue looks at what is before it, when the key before it is gone.
		if want := i < len(reqs)-1; g.Contended != want {
			t.Errorf("grant %d of 3 that waited says contended: %t", i, g.Contended)
		}
	}
}
