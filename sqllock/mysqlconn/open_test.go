package mysqlconn

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]struct{ addr, user, password, database, tables string }{
		"mysql://u%40x:p%2F@example.org:1234/app?tls=skip-verify&hf.tables=app_locks": {"example.org:1234", "u@x", "p/", "app", "app_locks"},
		"mysql:///app": {"localhost:3306", "", "", "app", sqllock.DefaultPrefix},
	} {
		u, err := driver.ParseURL(raw)
		must(t, err)
		config, o, err := parse(u)
		must(t, err)
		if config.Addr != want.addr || config.User != want.user || config.Passwd != want.password || config.DBName != want.database {
			t.Errorf("%s is %+v", raw, config)
		}
		if o.Prefix != want.tables {
			t.Errorf("%s has the prefix %s", raw, o.Prefix)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"mysql://u:s3cret@h/app?hf.table=x":            `"hf.table"`,
		"mysql://u:s3cret@h":                           "no database",
		"mysql://u:s3cret@/app?socket=run/mysqld.sock": "?socket=/run", "mysql://u:s3cret@/app?socket=": "?socket=/run",
		"mysql://u:s3cret@h/app?socket=/run/mysqld.sock": "?socket=/run", "mysql://u:s3cret@/run/mysqld/mysqld.sock": "?socket=/run",
		"mysql://u:s3cret@h/a/b":                 "no database",
		"mysql://u:s3cret@h/app?timeout=perhaps": "does not understand",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}

func TestSocket(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		var socket string
		must(t, openDB(t, server, "").QueryRowContext(t.Context(), "SELECT @@socket").Scan(&socket))
		d, err := openURL(t.Context(), "mysql://root@/test?"+url.Values{"socket": {socket}}.Encode())
		must(t, err)
		defer d.Close()
		other := openIn(t, server.URL())
		if d.Caps().Store != other.Caps().Store {
			t.Error("the socket leads to another store")
		}
		if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: 30 * time.Second}); err != nil {
			t.Error(err)
		}
		if _, err := other.Try(t.Context(), driver.Request{Name: "x", Owner: "p", TTL: 30 * time.Second}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("x is held by the client of the socket: %v", err)
		}
	})
}

// TestUse: a store stays in its database, whichever one an application has chosen on a connection of the pool.
func TestUse(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "?multiStatements=true")
		const theirs = "`the``ir-s`"
		exec(t, admin, "CREATE DATABASE "+theirs+"; USE "+theirs+"; "+sqllock.Schema(sqllock.MySQL, "")+"USE test")
		db := oneConn(openDB(t, server, ""))
		sqltest.Pending(t, db, overPool(t, db), openIn(t, server.URL()), true, func(conn *sql.Conn) {
			exec(t, conn, "USE "+theirs)
		})
	})
}
