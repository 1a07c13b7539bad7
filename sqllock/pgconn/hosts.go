package pgconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// A host without power does not even refuse. pgx tries one host after the other, and each such host would take
// its whole time. So connections are tried as RFC 8305 says: the next host's turn comes when the one before has
// failed, or has not answered for a moment, and the first connection that is good is used.

// nextHostAfter is how long a host is tried alone.
const nextHostAfter = 250 * time.Millisecond

// byHost returns one configuration for each host. A host may have several ways in, with and without TLS,
// which pgx tries one after the other.
func byHost(config *pgx.ConnConfig) (hosts []*pgx.ConnConfig) {
	add := func(host string, port uint16) *pgx.ConnConfig {
		one := config.Copy()
		one.Host, one.Port, one.Fallbacks = host, port, nil
		hosts = append(hosts, one)
		return one
	}
	now := add(config.Host, config.Port)
	for _, f := range config.Fallbacks {
		if f.Host == now.Host && f.Port == now.Port {
			now.Fallbacks = append(now.Fallbacks, f)
			continue
		}
		now = add(f.Host, f.Port)
		now.TLSConfig = f.TLSConfig
	}
	return hosts
}

// attempt is the outcome of trying one host.
type attempt[C any] struct {
	host int
	conn C
	err  error
}

// firstHost tries hosts, beginning with one of them, and returns the first connection, and its host. It
// discards those that come later.
func firstHost[C any](ctx context.Context, hosts []*pgx.ConnConfig, begin int,
	connect func(context.Context, *pgx.ConnConfig) (C, error), discard func(C)) (conn C, host int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan attempt[C], len(hosts))
	started, open := 0, 0
	next := func() {
		host := (begin + started) % len(hosts)
		started++
		open++
		go func() {
			c, err := connect(ctx, hosts[host])
			ended <- attempt[C]{host, c, err}
		}()
	}
	next()
	for open > 0 {
		var late <-chan time.Time
		if started < len(hosts) {
			late = time.After(nextHostAfter)
		}
		select {
		case a := <-ended:
			open--
			if a.err == nil {
				go func() {
					for range open {
						if a := <-ended; a.err == nil {
							discard(a.conn)
						}
					}
				}()
				return a.conn, a.host, nil
			}
			err = errors.Join(err, a.err)
			if started < len(hosts) && ctx.Err() == nil {
				next()
			}
		case <-late:
			next()
		}
	}
	return conn, 0, err
}

// connectTo connects to one of the hosts of a configuration, and first tries the one that was used last.
func connectTo[C any](ctx context.Context, config *pgx.ConnConfig, last *atomic.Int32,
	connect func(context.Context, *pgx.ConnConfig) (C, error), discard func(C)) (C, error) {
	hosts := byHost(config)
	conn, host, err := firstHost(ctx, hosts, int(last.Load())%len(hosts), connect, discard)
	if err == nil {
		last.Store(int32(host))
	}
	return conn, err
}

// connector makes the connections of a URL's pool.
type connector struct{ *settings }

// openPool returns a pool over the settings of a URL.
func openPool(s *settings) *sql.DB { return sql.OpenDB(connector{s}) }

// Driver implements driver.Connector.
func (connector) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	config, err := c.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return connectTo(ctx, config, &c.lastHost,
		func(ctx context.Context, one *pgx.ConnConfig) (sqldriver.Conn, error) {
			return stdlib.GetConnector(*one).Connect(ctx)
		},
		func(late sqldriver.Conn) { late.Close() })
}
