package pgconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// byHost returns one configuration for each host. A host may have several ways in, with and without TLS, which pgx
// tries one after the other.
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

// connectTo connects to the first of the hosts of a configuration that is there and good, and begins with the one that
// was used last: a host without power does not even refuse, and would take its whole time again and again.
func connectTo[C any](ctx context.Context, config *pgx.ConnConfig, last *atomic.Int32,
	connect func(context.Context, *pgx.ConnConfig) (C, error)) (conn C, err error) {
	hosts, begin := byHost(config), int(last.Load())
	for i := range hosts {
		host := (begin + i) % len(hosts)
		c, trouble := connect(ctx, hosts[host])
		if trouble == nil {
			last.Store(int32(host))
			return c, nil
		}
		if err = errors.Join(err, trouble); ctx.Err() != nil {
			last.Store(int32((host + 1) % len(hosts))) // the next caller may have no more time than this one
			break
		}
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
		})
}
