//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// busyBelow is an etcd in which somebody puts a key right before each transaction.
type busyBelow struct {
	etcdserverpb.KVClient
	put func()
}

func (k busyBelow) Txn(ctx context.Context, req *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	k.put()
	return k.KVClient.Txn(ctx, req, opts...)
}

// TestBusyBelow: a free name is granted, and a held one is not, while keys of longer
// names, or of another store, come and go below it all the time (P7, P1).
func TestBusyBelow(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for what, o := range map[string]struct {
		one, other  *Options
		name, below string
	}{
		"orders beside orders/N in the layout stock": {&Options{Layout: Stock, Prefix: "s"}, &Options{Layout: Stock, Prefix: "s"}, "orders", "orders/"},
		"the stores holdfast and holdfast/lock":      {nil, &Options{Prefix: "holdfast/lock"}, "lock", "x"},
		"the stores holdfast and holdfast/lock/deep": {nil, &Options{Prefix: "holdfast/lock/deep"}, "deep", "x"},
	} {
		a, b, puts := dial(t, server.Addrs(), o.one), dial(t, server.Addrs(), o.other), 0
		quiet := atomic.Bool{}
		busy := busyBelow{a.direct, func() {
			if quiet.Load() {
				return
			}
			puts++
			take(t, b, plainRequest(fmt.Sprint(o.below, puts), fmt.Sprint(what, puts)))
		}}
		a.direct, a.kv = busy, clientv3.NewKVFromKVClient(busy, a.etcd)
		g, err := a.Try(t.Context(), plainRequest(o.name, what))
		if err != nil {
			t.Fatalf("%s: P7: a free name: %v", what, err)
		}
		if _, err := a.Try(t.Context(), plainRequest(o.name, what+" second")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: P1: a name that is held: %v", what, err)
		}
		for range 2 * table.Nearby { // more than an exclusive request looks at
			busy.put()
		}
		third := plainRequest(o.name, what+" third")
		if _, err := a.Enqueue(t.Context(), third); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: P1: a name that is held: %v", what, err)
		}
		quiet.Store(true)
		granted := make(chan error, 1)
		go func() {
			_, err := a.Wait(t.Context(), third)
			granted <- err
		}()
		select {
		case err := <-granted:
			t.Errorf("%s: P1: a waiter for a name that is held: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
		if err := a.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Error(err)
		}
		if err := <-granted; err != nil {
			t.Errorf("%s: P7: a waiter: %v", what, err)
		}
		if err := a.Release(t.Context(), []driver.Grant{{Request: third}})[0]; err != nil {
			t.Error(err)
		}
		info, err := a.Inspect(t.Context(), o.name)
		if err != nil || !info.Idle() {
			t.Errorf("%s: a name that is free is shown as %+v, %v", what, info, err)
		}
		if o.one == nil {
			for info, err := range a.List(t.Context(), o.name) {
				t.Errorf("%s: listed is %+v, %v", what, info, err)
			}
		}
		a.Close()
		b.Close()
	}
}
