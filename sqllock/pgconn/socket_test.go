package pgconn

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestSocket(t *testing.T) {
	server := testserver.StartPostgres(t)
	_, port, _ := net.SplitHostPort(server.Addr)
	params := url.Values{"host": {filepath.Dir(server.Dir)}, "port": {port}}
	u, err := driver.ParseURL("postgres://postgres@/postgres?" + params.Encode())
	must(t, err)
	d, err := driver.Open(t.Context(), u)
	must(t, err)
	defer d.Close()
	if d.(driver.Notifier).Losses() == nil {
		t.Error("notifications do not arrive over the socket")
	}
	other := dial(t, server, nil)
	defer other.Close()
	if d.Caps().Store != other.Caps().Store {
		t.Error("the socket leads to another store")
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: time.Minute}); err != nil {
		t.Error(err)
	}
	if _, err := other.Try(t.Context(), driver.Request{Name: "x", Owner: "p", TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("x is held by the client of the socket: %v", err)
	}
}
