//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
)

// nameAt returns a name that a master has at the beginning, or the replica that has taken over from it.
func nameAt(master int, begins string) string {
	for i := 0; ; i++ {
		name := fmt.Sprint(begins, "/", i)
		if of := slot.Of(name); slot.Count*master/3 <= of && of < slot.Count*(master+1)/3 {
			return name
		}
	}
}

// TestClusterFailoverReplicas: of three masters with a replica each, one is killed, and later another is
// stopped, while clients with more than a hundred connections hold and wait for names of all three. Each
// replica has acknowledged all that its master has granted, so no lock is forgotten, none is held twice, and
// tokens grow. The replica that has taken over has none of its own: until the old master is back, nothing
// counts there, and who cannot renew in time is told so. On the other masters all goes on.
func TestClusterFailoverReplicas(t *testing.T) {
	const clients = 10 // with ten connections each, and one for each master where it waits
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
	masters := servers.Servers[:3]
	for _, r := range masters {
		r.AwaitReplicas(1)
	}
	url := clusterURL(servers) + "?hf.replicas=1"
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	r := &rivals{TB: t, served: make([]atomic.Int64, 3*clients), last: map[string]holdfast.Token{}, inside: map[string]*holdfast.Lease{}}
	var kept []*holdfast.Lease
	var all []*holdfast.Client
	for i := range clients {
		c := openURL(t, url)
		all = append(all, c)
		for j := range masters {
			kept = append(kept, acquire(t, c, nameAt(j, fmt.Sprint("own/", i)), &holdfast.Options{TTL: time.Minute, RenewEvery: 500 * time.Millisecond}))
			name := nameAt(j, fmt.Sprint("few/", i%2))
			work.Go(func() { r.compete(ctx, c, name, &r.served[3*i+j]) })
		}
	}
	r.allServed(0, 1)
	connections := 0
	for _, master := range masters {
		_, text, _ := strings.Cut(master.Ask("INFO", "clients"), "connected_clients:")
		text, _, _ = strings.Cut(text, "\r")
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		connections += n
	}
	if connections < 100 {
		t.Errorf("the clients have %d connections", connections)
	}

	for i, fault := range []struct {
		name      string
		end, back func(*testserver.Redis)
	}{
		{"killed", (*testserver.Redis).Kill, (*testserver.Redis).Start},
		{"stopped", (*testserver.Redis).Pause, (*testserver.Redis).Resume},
	} {
		t.Run(fault.name, func(t *testing.T) {
			r.TB = t
			before := masters[i]
			var short []*holdfast.Lease
			for j, c := range all {
				short = append(short, acquire(t, c, nameAt(i, fmt.Sprint("short/", j)), &holdfast.Options{TTL: 2 * time.Second}))
			}
			lates := make([]chan time.Duration, len(short))
			for i, lease := range short {
				lates[i] = make(chan time.Duration, 1)
				go func() { <-lease.Done(); lates[i] <- time.Since(lease.ValidUntil()) }()
			}
			fault.end(before)
			servers.AwaitMaster(short[0].Name(), before)
			told := time.Now()
			var late time.Duration
			for i, lease := range short {
				late = max(late, <-lates[i])
				if !errors.Is(lease.Err(), holdfast.ErrLost) {
					t.Errorf("P2: a lease that could not be renewed says %v", lease.Err())
				}
			}
			for j, master := range masters {
				if master != before {
					r.allServed(j, 3)
				}
			}
			fault.back(before)
			back := time.Now()
			r.allServed(0, 1)
			t.Logf("with %d connections: losses were told at most %v after their trust deadlines; all were served twice within %v of the old master's return, %v after the take-over", connections, late, time.Since(back), time.Since(told))
			for _, lease := range short {
				if after := acquire(t, all[0], lease.Name(), nil); after.Token() <= lease.Token() {
					t.Errorf("P3: token %d comes after %d", after.Token(), lease.Token())
				} else if err := after.Release(); err != nil {
					t.Error(err)
				}
				_ = lease.Release() // it is lost
			}
			witness := openURL(t, clusterURL(servers))
			for _, lease := range kept {
				until(t, fmt.Sprintf("%s is renewed or lost", lease.Name()), func() bool {
					return lease.Renew(t.Context()) == nil || lease.Err() != nil
				})
				if err := lease.Err(); err != nil {
					t.Errorf("a hold that a replica had acknowledged was lost: %v", err)
				} else if _, err := witness.Mutex(lease.Name(), nil).TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("P1: %v is trusted, and the new master says %v", lease, err)
				}
			}
		})
	}
	r.TB = t
	stop()
	work.Wait()
	t.Logf("of short leases of %d rivals %d were lost", len(r.served), r.lost.Load())
}
