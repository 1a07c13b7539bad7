package etcdlock

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// BenchmarkHandOff passes one lock on between contenders that each have a client
// of their own, as processes would: ours, and etcd's own Mutex.
func BenchmarkHandOff(b *testing.B) {
	server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
	for _, contenders := range []int{2, 16} {
		for _, way := range []struct {
			name string
			open func() (turn func(context.Context) error, done func())
		}{
			{"holdfast", func() (func(context.Context) error, func()) {
				locks, err := holdfast.Open(b.Context(), "etcd://"+server.Addrs())
				if err != nil {
					b.Fatal(err)
				}
				lock := locks.Mutex("bench", nil)
				return func(ctx context.Context) error {
					lease, err := lock.Acquire(ctx)
					if err != nil {
						return err
					}
					return lease.Release()
				}, func() { locks.Close() }
			}},
			{"stock", func() (func(context.Context) error, func()) {
				etcd := dialClient(b, server.Addrs())
				session, err := concurrency.NewSession(etcd)
				if err != nil {
					b.Fatal(err)
				}
				mutex := concurrency.NewMutex(session, "stock")
				return func(ctx context.Context) error {
					if err := mutex.Lock(ctx); err != nil {
						return err
					}
					return mutex.Unlock(ctx)
				}, func() { session.Close(); etcd.Close() }
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", way.name, contenders), func(b *testing.B) {
				turns := make([]func(context.Context) error, contenders)
				for i := range turns {
					turn, done := way.open()
					defer done()
					turns[i] = turn
				}
				changes := passOn(b, turns)
				b.ReportMetric(float64(changes)/b.Elapsed().Seconds(), "owner-changes/s")
			})
		}
	}
}

// passOn takes b.N turns, shared out, and returns how often the owner changed.
func passOn(b *testing.B, turns []func(context.Context) error) int64 {
	var left, changes, last atomic.Int64
	left.Store(int64(b.N))
	last.Store(-1)
	var wg sync.WaitGroup
	b.ResetTimer()
	for i, turn := range turns {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := turn(b.Context()); err != nil {
					b.Error(err)
					return
				}
				if last.Swap(int64(i)) != int64(i) {
					changes.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	return changes.Load()
}

// BenchmarkWake has our watches and those of etcd's client library in turns, and reports medians: from the
// request for a watch until it has begun, and from the deletion of its key until the news of that. It also
// reports how many goroutines a watch takes.
func BenchmarkWake(b *testing.B) {
	server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
	c, deleter := dial(b, server.Addrs(), nil), dialClient(b, server.Addrs())
	defer deleter.Close()
	ways := map[string]func(key string) (next, end func()){
		"ours": func(key string) (next, end func()) {
			news := make(chan struct{}, 8)
			c.mu.Lock()
			defer c.mu.Unlock()
			w := c.watchLocked(span{key: key}, func(*etcdserverpb.WatchResponse) { news <- struct{}{} })
			return func() { <-news }, func() { c.mu.Lock(); w.endLocked(); c.mu.Unlock() }
		},
		"library's": func(key string) (next, end func()) {
			ctx, end := context.WithCancel(clientv3.WithRequireLeader(b.Context()))
			news := c.main.etcd.Watch(ctx, key, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
			return func() { <-news }, end
		},
	}
	const many = 100
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, watch := range ways {
			if _, err := deleter.Put(b.Context(), name, ""); err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			next, end := watch(name)
			next()
			opened := time.Now()
			var deleted sync.WaitGroup
			deleted.Go(func() { deleter.Delete(b.Context(), name) })
			next()
			took[name+"-begin"], took[name+"-wake"] = append(took[name+"-begin"], opened.Sub(began)), append(took[name+"-wake"], time.Since(opened))
			deleted.Wait()
			end()
		}
	}
	for what, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), what+"-µs")
	}
	for name, watch := range ways {
		before := runtime.NumGoroutine()
		for i := range many {
			next, end := watch(fmt.Sprint(i))
			next()
			defer end()
		}
		b.ReportMetric(float64(runtime.NumGoroutine()-before)/many, name+"-goroutines/watch")
	}
}
