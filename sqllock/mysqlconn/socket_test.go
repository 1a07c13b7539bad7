package mysqlconn

import (
	"errors"
	"net/url"
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
