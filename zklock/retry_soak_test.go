//go:build soak

package zklock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// cutter breaks connections right after a request for a name has been written, some times.
type cutter struct {
	text string
	left atomic.Int64
	seen atomic.Int64 // requests for the name
}

func (c *cutter) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c}, nil
}

type cutConn struct {
	net.Conn
	*cutter
	dead atomic.Bool // nothing that the server answers arrives any more
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		c.seen.Add(1)
		if c.left.Add(-1) >= 0 {
			c.dead.Store(true)
			defer c.Conn.Close()
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dead.Load() {
		return 0, io.EOF
	}
	return n, err
}

// TestRetries: a request whose connection is lost is made again as often as the policy says, and no more;
// and what it has made the first time is found.
func TestRetries(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	other, java := x.open(t), x.raw(t)
	for i, c := range []struct {
		policy  string
		cuts    int64
		granted bool
	}{
		{"none", 0, true}, {"none", 1, false},
		{"times:3:1ms", 3, true}, {"times:3:1ms", 4, false},
		{"", 3, true}, // the default
	} {
		name := fmt.Sprintf("retry/%d/x", i)
		cut := &cutter{text: name}
		d := x.openWith(t, Config{Dial: cut.dial, Retry: c.policy})
		release(t, d, take(t, d, request("retry/other")))
		r := request(name)
		cut.left.Store(c.cuts)
		g, err := d.Try(t.Context(), r)
		if (err == nil) != c.granted || err != nil && !errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%q, cut %d times: %v", c.policy, c.cuts, err)
		}
		if c.granted {
			if n := ownNodes(java, name, r); n != 1 {
				t.Errorf("P6: %q, cut %d times: the hold has %d nodes", c.policy, c.cuts, n)
			}
			refused(t, other, request(name))
			release(t, d, g)
		} else if seen := cut.seen.Load(); seen != c.cuts {
			t.Errorf("%q: %d requests before it gave up, not %d", c.policy, seen, c.cuts)
		}
		cut.left.Store(0)
		if err := d.Release(t.Context(), []driver.Grant{{Request: r}})[0]; err != nil && !driver.Gone(err) {
			t.Errorf("P6: withdrawing: %v", err)
		}
		release(t, other, take(t, other, request(name)))
		d.Close()
	}
}
