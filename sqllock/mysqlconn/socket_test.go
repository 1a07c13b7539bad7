package mysqlconn

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

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
		if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: time.Minute}); err != nil {
			t.Error(err)
		}
		if _, err := other.Try(t.Context(), driver.Request{Name: "x", Owner: "p", TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("x is held by the client of the socket: %v", err)
		}
	})
}

// TestSocketForms: what is not understood is refused before any contact, and the error says what is right.
func TestSocketForms(t *testing.T) {
	for _, raw := range []string{
		"mysql://u:s3cret@/app?socket=run/mysqld.sock", "mysql://u:s3cret@/app?socket=", "mysql://u:s3cret@h/app?socket=/run/mysqld.sock",
		"mysql://u:s3cret@/app?unix_socket=/run/mysqld.sock", "mysql://u:s3cret@/app?host=/run/mysqld.sock",
		"mysql://u:s3cret@unix(/run/mysqld.sock)/app", "mysql://u:s3cret@/run/mysqld/mysqld.sock",
	} {
		u, err := driver.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), "?socket=/run") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error %v does not say what is right, or shows a password", raw, err)
		}
	}
}
