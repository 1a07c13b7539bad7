package etcdlock

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// route is a way to etcd. Renewals and releases have one of their own: connections on
// which nothing else is under way, so that neither etcd's limit of requests for each
// connection, nor large answers, nor other requests of a program that shares its client
// with its locks hold them up.
type route struct {
	etcd   *clientv3.Client
	kv     clientv3.KV
	leases clientv3.Lease
	direct etcdserverpb.KVClient
}

func newRoute(etcd *clientv3.Client) *route {
	return &route{
		etcd, requests{clientv3.NewKV(etcd)}, leases{clientv3.NewLease(etcd)},
		etcdserverpb.NewKVClient(etcd.ActiveConnection()),
	}
}

// spareRoute returns the route of renewals and releases, or that of all other requests
// while it has no connection.
func (c *client) spareRoute() *route {
	if l := c.spare.Load(); l != nil && l.etcd.ActiveConnection().GetState() == connectivity.Ready {
		return l
	}
	return &route{c.etcd, c.kv, c.leases, c.direct}
}

// openReserve makes the route of renewals and releases, until Close. With a user etcd is
// asked for a token first, so it is done beside.
func (c *client) openReserve(config clientv3.Config) {
	config.Context = c.life
	c.background.Go(func() {
		for {
			etcd, err := clientv3.New(config)
			if err == nil {
				etcd.ActiveConnection().Connect()
				c.spare.Store(newRoute(etcd))
				return
			}
			if !sleep(c.life, c.poll) {
				return
			}
		}
	})
}
