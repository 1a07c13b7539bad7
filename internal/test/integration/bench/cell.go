package bench

import (
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/etcdlock"

	_ "github.com/holdfastlock/holdfast/celllock"
)

// The cell's peers are locks in the very etcd that it embeds, which they reach by its socket. An
// address is the member's for clients, a semicolon, the socket, and for TLS another semicolon and the
// parameters of its URL.
func init() {
	url := func(addr string) string {
		parts := strings.Split(addr, ";")
		if len(parts) == 3 {
			return "cells://" + parts[0] + "?" + parts[2]
		}
		return "cell://" + parts[0]
	}
	on := func(open func(context.Context, string) (Locker, error)) func(context.Context, string) (Locker, error) {
		return func(ctx context.Context, addr string) (Locker, error) { return open(ctx, etcdOfCell(addr)) }
	}
	stores["cell"] = &store{
		name: "cell", floor: "etcdlock", ours: "holdfast", url: url, work: cellWork,
		peers: []peer{
			{name: "etcdlock", open: on(openEtcdlock)},
			{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, url(addr)) }},
			{name: "v3lock", open: on(openV3lock), skips: []string{"wait", "hold"}},
			{name: "concurrency.Mutex", open: on(openStockEtcd)},
		},
	}
	crowd := *stores["cell"]
	crowd.floor, crowd.peers = "", slices.Clone(crowd.peers)
	for i := range crowd.peers {
		crowd.peers[i].skips = notCrowds
	}
	crowdStores["cell"] = &crowd
}

// cellWork asks the member how many calls it has answered, and its etcd how many messages it has received,
// and how much memory both have.
func cellWork(ctx context.Context, addr string) (served, error) {
	return etcdWork(ctx, strings.Split(addr, ";")[0])
}

// etcdOfCell is where the member's etcd is.
func etcdOfCell(addr string) string { return "unix:" + strings.Split(addr, ";")[1] }

// openEtcdlock opens Holdfast's driver for etcd, over a client of the socket.
func openEtcdlock(ctx context.Context, addr string) (Locker, error) {
	etcd, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	d, err := etcdlock.New(ctx, etcd, nil)
	if err != nil {
		etcd.Close()
		return nil, err
	}
	c, err := holdfast.New(d, nil)
	if err != nil {
		return nil, err
	}
	return ours{c}, nil
}

// v3lock is the lock service that etcd has itself: it waits for the caller.
type v3lock struct {
	client *clientv3.Client
	locks  v3lockpb.LockClient
	leases chan clientv3.LeaseID // of those who do not hold
}

func openV3lock(_ context.Context, addr string) (Locker, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	return &v3lock{client, v3lockpb.NewLockClient(client.ActiveConnection()), make(chan clientv3.LeaseID, 1024)}, nil
}

// lease returns a lease that nobody else uses: two callers with one lease do not exclude each other.
func (v *v3lock) lease(ctx context.Context) (clientv3.LeaseID, error) {
	select {
	case id := <-v.leases:
		return id, nil
	default:
	}
	lease, err := v.client.Grant(ctx, 600)
	if err != nil {
		return 0, err
	}
	return lease.ID, nil
}

func (v *v3lock) Lock(ctx context.Context, name string) (func() error, error) {
	id, err := v.lease(ctx)
	if err != nil {
		return nil, err
	}
	held, err := v.locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(id)})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := v.locks.Unlock(context.Background(), &v3lockpb.UnlockRequest{Key: held.Key})
		v.leases <- id
		return err
	}, nil
}

func (v *v3lock) Close() error { return v.client.Close() }
