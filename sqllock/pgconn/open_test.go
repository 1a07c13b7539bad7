package pgconn

import (
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestParse(t *testing.T) {
	u, err := driver.ParseURL("postgres://u:p%2F@example.org:1234/app?sslmode=disable&hf.tables=app_locks&hf.maxttl=1h&connect_timeout=7")
	must(t, err)
	config, o, err := parse(u)
	must(t, err)
	if config.Host != "example.org" || config.Port != 1234 || config.User != "u" || config.Password != "p/" || config.Database != "app" ||
		config.ConnectTimeout != 7*time.Second || config.TLSConfig != nil || config.RuntimeParams["hf.tables"] != "" {
		t.Errorf("%+v", config)
	}
	if o.Prefix != "app_locks" || o.MaxTTL != time.Hour {
		t.Errorf("the options are %+v", o)
	}
}

// TestParseSeveralHosts: connections lead to the host that takes writes, unless the URL says how to
// find it.
func TestParseSeveralHosts(t *testing.T) {
	for raw, want := range map[string]struct {
		hosts   string
		checks  bool
		timeout time.Duration
	}{
		"postgres://u@a:1,b:2,c:5433/app?sslmode=disable":                       {"a:1 b:2 c:5433", true, dialEachTimeout},
		"postgres://u@/app?host=a,b&port=1,2&sslmode=disable":                   {"a:1 b:2", true, dialEachTimeout},
		"postgres://u@a,b/app?target_session_attrs=primary&sslmode=disable":     {"a:5432 b:5432", true, dialEachTimeout},
		"postgres://u@a,b/app?connect_timeout=7&sslmode=disable":                {"a:5432 b:5432", true, 7 * time.Second},
		"postgres://u@a/app?sslmode=disable":                                    {"a:5432", false, dialTimeout},
		"postgres://u@a/app?target_session_attrs=any&sslmode=disable":           {"a:5432", false, dialTimeout},
		"postgres://u@a/app?target_session_attrs=read-write&sslmode=disable":    {"a:5432", true, dialTimeout},
		"postgresql://u@a,b/app?target_session_attrs=read-write&sslmode=prefer": {"a:5432 a:5432 b:5432 b:5432", true, dialEachTimeout},
	} {
		u, err := driver.ParseURL(raw)
		must(t, err)
		config, _, err := parse(u)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		hosts := fmt.Sprintf("%s:%d", config.Host, config.Port)
		for _, f := range config.Fallbacks {
			hosts += fmt.Sprintf(" %s:%d", f.Host, f.Port)
		}
		if hosts != want.hosts || config.ValidateConnect != nil != want.checks || config.ConnectTimeout != want.timeout {
			t.Errorf("%s: hosts %s, checked: %v, within %v; want %+v", raw, hosts, config.ValidateConnect != nil, config.ConnectTimeout, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"postgres://u:s3cret@h/app?hf.table=x":                             `"hf.table"`,
		"postgres:app":                                                     "malformed",
		"postgres://u:s3cret@h/app?sslmode=perhaps":                        "does not understand",
		"postgres://u:s3cret@h/app?target_session_attrs=read-write-please": "does not understand",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}

func TestSocket(t *testing.T) {
	server := testserver.StartPostgres(t)
	_, port, _ := net.SplitHostPort(server.Addr)
	params := url.Values{"host": {filepath.Dir(server.Dir)}, "port": {port}}
	u, err := driver.ParseURL("postgres://postgres@/postgres?" + params.Encode())
	must(t, err)
	d, err := driver.Open(t.Context(), u)
	must(t, err)
	defer d.Close()
	other := dial(t, server, nil)
	defer other.Close()
	if d.Caps().Store != other.Caps().Store {
		t.Error("the socket leads to another store")
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: 30 * time.Second}); err != nil {
		t.Error(err)
	}
	if _, err := other.Try(t.Context(), driver.Request{Name: "x", Owner: "p", TTL: 30 * time.Second}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("x is held by the client of the socket: %v", err)
	}
}

// TestCertificatesAreReplaced: each connection shows the certificate that the files have when it is made, and the one
// before while the new one has no key yet.
func TestCertificatesAreReplaced(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	cert, key := testserver.Certificate(t, dir, "", 1)
	testserver.Certificate(t, next, "", 2)
	u := &url.URL{Scheme: "postgres", User: url.User("u"), Host: "127.0.0.1", Path: "/d"}
	u.RawQuery = url.Values{"sslmode": {"require"}, "sslcert": {cert}, "sslkey": {key}}.Encode()
	db, now, _, err := pool(u)
	must(t, err)
	defer db.Close()
	shows := func(want int64) {
		t.Helper()
		config, err := now(t.Context())
		must(t, err)
		shown, err := x509.ParseCertificate(config.TLSConfig.Certificates[0].Certificate[0])
		must(t, err)
		if got := shown.SerialNumber.Int64(); got != want {
			t.Errorf("a connection shows certificate %d, not %d", got, want)
		}
	}
	shows(1)
	must(t, os.Rename(filepath.Join(next, filepath.Base(cert)), cert))
	shows(1)
	must(t, os.Rename(filepath.Join(next, filepath.Base(key)), key))
	shows(2)
}

// TestPending: a hold that is not committed is never reported as held. pgx's pool finds a transaction
// that is left open when it hands a connection out. The library may be older, or another.
func TestPending(t *testing.T) {
	server := shared(t)
	db, err := sql.Open("pgx", server.URL("postgres"))
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	other := dial(t, server, nil)
	defer other.Close()
	sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) {
		exec(t, conn, "BEGIN")
	})
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	if pending(t.Context(), conn) {
		t.Error("a new connection is taken for one in a transaction")
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil || !pending(t.Context(), conn) {
		t.Errorf("a connection in a transaction is not known for one: %v", err)
	}
}
