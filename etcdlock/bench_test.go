package etcdlock

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkPair takes and releases a lock that nobody else wants: raw is one
// transaction and one delete of the same client, the floor.
func BenchmarkPair(b *testing.B) {
	server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
	etcd := dialClient(b, server.Addrs())
	defer etcd.Close()
	d, err := New(b.Context(), etcd, nil)
	if err != nil {
		b.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer locks.Close()
	lease, err := etcd.Grant(b.Context(), 600)
	if err != nil {
		b.Fatal(err)
	}
	session, err := concurrency.NewSession(etcd)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	for _, workers := range []int{1, 64} {
		for _, way := range []struct {
			name string
			pair func(ctx context.Context, name string) error
		}{
			{"raw", func(ctx context.Context, name string) error {
				_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
					Then(clientv3.OpPut(name, "an owner", clientv3.WithLease(lease.ID))).Commit()
				if err != nil {
					return err
				}
				_, err = etcd.Delete(ctx, name)
				return err
			}},
			{"holdfast", func(ctx context.Context, name string) error {
				lease, err := locks.Mutex(name, nil).Acquire(ctx)
				if err != nil {
					return err
				}
				return lease.Release()
			}},
			{"stock", func(ctx context.Context, name string) error {
				mutex := concurrency.NewMutex(session, name)
				if err := mutex.Lock(ctx); err != nil {
					return err
				}
				return mutex.Unlock(ctx)
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", way.name, workers), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for i := range workers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := way.pair(b.Context(), "bench/"+strconv.Itoa(i)); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkHeld holds 10,000 leases, and reports what each takes of the client's
// memory: all of it, and the driver's part.
func BenchmarkHeld(b *testing.B) {
	const leases = 10_000
	server := testserver.StartEtcd(b, testserver.EtcdOptions{})
	for b.Loop() {
		locks, err := holdfast.Open(b.Context(), "etcd://"+server.Addrs())
		if err != nil {
			b.Fatal(err)
		}
		before := heap()
		held := make([]*holdfast.Lease, leases)
		var wg sync.WaitGroup
		for w := range 32 {
			wg.Go(func() {
				for i := w; i < leases; i += 32 {
					lease, err := locks.Mutex(fmt.Sprintf("held/%d", i), &holdfast.Options{TTL: 5 * time.Minute}).Acquire(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					held[i] = lease
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(heap()-before)/leases, "B/lease")
		runtime.KeepAlive(held)
		locks.Close()
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
