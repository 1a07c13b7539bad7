package mysqlconn

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// escaping are names whose last byte before the quote is the first byte of a character in GBK, Big5 or
// SJIS: a backslash before the quote would be its second one.
var escaping = []string{
	"日'; CREATE TABLE owned (x INT); -- ", "é'; CREATE TABLE owned (x INT); -- ", "€'; CREATE TABLE owned (x INT); -- ",
	"😀'; CREATE TABLE owned (x INT); -- ", `\'; CREATE TABLE owned (x INT); -- `,
}

// TestCharset: a name is no SQL, and the same name, in whatever character set the connection is.
func TestCharset(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		plain := openIn(t, server.URL())
		for _, charset := range []string{"gbk", "sjis", "big5", "latin1"} {
			t.Run(charset, func(t *testing.T) {
				readsNames(t, server, openIn(t, server.URL()+"?charset="+charset), plain, charset)
			})
			t.Run(charset+", a pool that writes arguments into its statements", func(t *testing.T) {
				d, err := New(t.Context(), openDB(t, server, "?interpolateParams=true&multiStatements=true&charset="+charset), nil)
				must(t, err)
				t.Cleanup(func() { d.Close() })
				readsNames(t, server, d, plain, charset+" pool")
			})
		}
	})
}

// TestServerCharset: the server says in which character set a connection is, whatever the client asks for.
func TestServerCharset(t *testing.T) {
	t.Run("handshake", func(t *testing.T) {
		server := testserver.StartMariaDB(t, "--skip-character-set-client-handshake", "--character-set-server=gbk", "--collation-server=gbk_chinese_ci")
		readsNames(t, server, openIn(t, server.URL()), openIn(t, server.URL()), "")
	})
	t.Run("init_connect", func(t *testing.T) {
		server := testserver.StartMariaDB(t, "--init-connect=SET NAMES gbk") // not for root
		admin := openDB(t, server, "")
		for _, text := range []string{"CREATE USER app@localhost", "GRANT ALL ON test.* TO app@localhost"} {
			exec(t, admin, text)
		}
		u := strings.Replace(server.URL(), "root@", "app@", 1)
		readsNames(t, server, openIn(t, u), openIn(t, server.URL()), "")
	})
}

func readsNames(t *testing.T, server *testserver.MySQL, d, plain driver.Driver, owner string) {
	t.Helper()
	for _, name := range append(escaping, "a😀") {
		g, err := d.Try(t.Context(), driver.Request{Name: name, Owner: owner + " first " + name, TTL: 30 * time.Second, Note: name})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if _, err := plain.Try(t.Context(), driver.Request{Name: name, Owner: owner + " second", TTL: 30 * time.Second}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: %q is held, and another client is told %v", name, err)
		}
		info, err := plain.(driver.Operator).Inspect(t.Context(), name)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Note != name {
			t.Errorf("%q is shown as %+v, %v", name, info, err)
		}
		if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Errorf("%q: release: %v", name, err)
		}
	}
	if g, err := plain.Try(t.Context(), driver.Request{Name: "a😁", Owner: owner + " third", TTL: 30 * time.Second}); err != nil {
		t.Errorf("a name that differs in one character is taken for another: %v", err)
	} else {
		plain.Release(t.Context(), []driver.Grant{g})
	}
	var n int
	if err := openDB(t, server, "").QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.tables WHERE table_name = 'owned'").Scan(&n); err != nil || n > 0 {
		t.Errorf("a name was run as SQL: %d tables, %v", n, err)
	}
}

// TestPrefixIsNoSQL: OpenPool's callers write the prefix into their statements.
func TestPrefixIsNoSQL(t *testing.T) {
	u := &url.URL{Scheme: "mysql", Host: "h", Path: "/d", RawQuery: url.Values{"hf.tables": {"x; DROP TABLE y; -- "}}.Encode()}
	if db, prefix, err := OpenPool(u); err == nil {
		db.Close()
		t.Errorf("OpenPool has returned the prefix %q", prefix)
	}
	if sqllock.CheckPrefix("x; DROP TABLE y; -- ") == nil {
		t.Error("that is no prefix")
	}
}

// openIn opens the driver of a URL until the test ends.
func openIn(t *testing.T, raw string) driver.Driver {
	t.Helper()
	d, err := openURL(t.Context(), raw)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}
