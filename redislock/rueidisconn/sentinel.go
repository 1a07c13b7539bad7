package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/sentinel"
)

// follow connects to the primary that sentinels name. It is a Conn to a single server, whose connections
// end when another server becomes the primary, and are made anew to that one.
func follow(option rueidis.ClientOption) (redislock.Conn, error) {
	dial, dialer, secured := option.DialCtxFn, option.Dialer, option.TLSConfig
	o := sentinel.Options{
		Sentinels: option.InitAddress, Primary: option.Sentinel.MasterSet,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, address, &dialer, secured)
		},
		Auth: credentials(&option),
	}
	primary := sentinel.New(o)
	option.Sentinel = rueidis.SentinelOption{}
	option.InitAddress = []string{o.Primary}
	option.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return primary.Dial(ctx)
	}
	conn, err := single(option)
	if err != nil {
		primary.Close()
		return nil, err
	}
	return sentinel.Conn(conn, primary), nil
}
