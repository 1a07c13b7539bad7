package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
)

// join connects to a cluster: to each of its servers as to a single one.
func join(option rueidis.ClientOption) (redislock.Conn, error) {
	c, err := cluster.Open(cluster.Options{
		Seeds: option.InitAddress,
		Open:  func(address string) (cluster.Server, error) { return member(option, address) },
	})
	if err != nil {
		return nil, err // and not a *cluster.Conn that is nil
	}
	return c, nil
}

// clusterServer is a server of a cluster.
type clusterServer struct {
	*opened
	dialed *cluster.Dialed
}

// member connects to a server of a cluster.
func member(option rueidis.ClientOption, address string) (cluster.Server, error) {
	s, dial := &clusterServer{dialed: &cluster.Dialed{}}, option.DialCtxFn
	option.InitAddress = []string{address}
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, secured *tls.Config) (net.Conn, error) {
		return s.dialed.Dial(ctx, func(ctx context.Context) (net.Conn, error) {
			return dial(ctx, address, dialer, secured)
		})
	}
	var err error
	if s.opened, err = single(option); err != nil {
		return nil, failure(err)
	}
	return s, nil
}

// Close implements redislock.Conn.
func (s *clusterServer) Close() error {
	s.dialed.Close()
	return s.opened.Close()
}
