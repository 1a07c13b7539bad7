package etcdlock

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

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
