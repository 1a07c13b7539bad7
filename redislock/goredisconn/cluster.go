package goredisconn

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
)

// OpenCluster returns a redislock.Conn to a Redis Cluster, with connections of its own. Options are those
// of each server; Addr and DB mean nothing. Servers are some of the cluster's, as host:port: the others
// are found by them. OpenCluster returns an error if none of them says which servers there are, or if
// ctx ends before that.
func OpenCluster(ctx context.Context, options *redis.Options, servers ...string) (redislock.Conn, error) {
	dial := options.Dialer
	if dial == nil {
		dial = redis.NewDialer(options)
	}
	return cluster.Open(ctx, cluster.Options{Seeds: servers, Open: func(address string, dialed *cluster.Dialed) (cluster.Server, error) {
		o := *options
		o.Addr, o.DB = address, 0
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialed.Dial(ctx, func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, address) })
		}
		return &owned{conn{client: redis.NewClient(&o)}}, nil
	}})
}
