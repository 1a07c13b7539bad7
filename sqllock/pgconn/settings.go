package pgconn

import (
	"context"
	sqldriver "database/sql/driver"
	"net/url"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// settings make the configuration for a URL. pgx reads the files of certificates and passwords when it parses a
// URL, and they are replaced before they expire. So settings parse the URL again for each connection.
type settings struct {
	url  *url.URL
	mu   sync.Mutex
	last *pgx.ConnConfig // the last that could be parsed
}

// Connect implements driver.Connector of database/sql, as Driver does: settings make the connections of a URL's pool.
func (s *settings) Connect(ctx context.Context) (sqldriver.Conn, error) {
	config, err := s.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config).Connect(ctx)
}

// Driver returns pgx's.
func (*settings) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// fresh returns the present configuration, or the last one while the files cannot be read or do not belong
// together.
func (s *settings) fresh(context.Context) (*pgx.ConnConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _, err := parse(s.url); err == nil {
		s.last = now
	}
	return s.last.Copy(), nil
}
