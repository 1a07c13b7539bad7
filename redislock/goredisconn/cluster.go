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
	type outcome struct {
		conn *cluster.Conn
		err  error
	}
	made := make(chan outcome, 1)
	go func() {
		conn, err := cluster.Open(cluster.Options{Seeds: servers, Open: func(address string) (cluster.Server, error) {
			return member(options, address), nil
		}})
		made <- outcome{conn, err}
	}()
	select {
	case m := <-made:
		if m.err != nil {
			return nil, m.err // and not a *cluster.Conn that is nil
		}
		return m.conn, nil
	case <-ctx.Done():
		go func() {
			if m := <-made; m.err == nil {
				m.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// clusterServer is a server of a cluster.
type clusterServer struct {
	owned
	dialed cluster.Dialed
}

// member connects to a server of a cluster when there is something to send.
func member(options *redis.Options, address string) *clusterServer {
	s, o := &clusterServer{}, *options
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(options)
	}
	o.Addr, o.DB = address, 0
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return s.dialed.Dial(ctx, func(ctx context.Context) (net.Conn, error) { return dial(ctx, network, address) })
	}
	s.client = redis.NewClient(&o)
	return s
}

// Close implements redislock.Conn.
func (s *clusterServer) Close() error {
	s.dialed.Close()
	return s.owned.Close()
}
