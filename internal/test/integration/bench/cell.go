package bench

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/etcdlock"

	_ "github.com/holdfastlock/holdfast/celllock"
)

// cellStore's peers are locks in the very etcd that the cell embeds, which they reach by its socket. An
// address is the member's for clients, a semicolon, the socket, and for TLS another semicolon and the
// parameters of its URL.
var cellStore = store{
	name: "cell", title: "cell", floor: "etcdlock", work: etcdWork,
	url: func(addr string) string {
		parts := strings.Split(addr, ";")
		if len(parts) == 3 {
			return "cells://" + parts[0] + "?" + parts[2]
		}
		return "cell://" + parts[0]
	},
	peers: []peer{
		{name: "etcdlock", can: all, open: onSocket(openEtcdlock)},
		{name: "v3lock", can: all &^ wait, open: onSocket(openV3lock)},
		{name: "concurrency.Mutex", can: all, open: onSocket(openStockEtcd)},
	},
}

// onSocket opens a peer over the socket of the cell's etcd.
func onSocket(open func(context.Context, string) (locker, error)) func(context.Context, string) (locker, error) {
	return func(ctx context.Context, addr string) (locker, error) {
		return open(ctx, "unix:"+strings.Split(addr, ";")[1])
	}
}

// openEtcdlock opens Holdfast's driver for etcd.
func openEtcdlock(ctx context.Context, addr string) (locker, error) {
	etcd, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	d, err := etcdlock.New(ctx, etcd, nil)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(d, nil)
	return ours(c), err
}

// openV3lock opens the lock service that etcd has itself: it waits for the caller. Two callers with one
// lease do not exclude each other, so each has one of its own while it waits or holds.
func openV3lock(_ context.Context, addr string) (locker, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	locks, leases := v3lockpb.NewLockClient(client.ActiveConnection()), make(chan clientv3.LeaseID, 1024)
	return func(ctx context.Context, name string) (hold, error) {
		var id clientv3.LeaseID
		select {
		case id = <-leases:
		default:
			lease, err := client.Grant(ctx, 600)
			if err != nil {
				return hold{}, err
			}
			id = lease.ID
		}
		held, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(id)})
		return hold{release: func() error {
			_, err := locks.Unlock(context.Background(), &v3lockpb.UnlockRequest{Key: held.Key})
			leases <- id
			return err
		}}, err
	}, nil
}
