//go:build soak

package pgconn

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestDeadlines: an ended context is told as such, also by an attempt to connect.
func TestDeadlines(t *testing.T) {
	server := testserver.StartPostgres(t)
	proxy := chaos.StartProxy(t, server.Addr)
	config, err := pgx.ParseConfig(strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr, 1))
	must(t, err)
	config.ConnectTimeout = time.Hour
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	sqltest.Deadlines(t, proxy, db, func(ctx context.Context, db *sql.DB) (driver.Driver, error) { return New(ctx, db, nil) })
}
