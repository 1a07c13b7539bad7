package redislock

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// hanging bounds what takes no time.
const hanging = time.Minute

// respConn is a Conn to one server, without a connection for renewals.
type respConn struct {
	Conn
	address string
}

func dialResp(t testing.TB, address string) *respConn {
	t.Helper()
	conn, err := Dial(context.Background(), &url.URL{Scheme: "redis", Host: address})
	if err != nil {
		t.Fatal(err)
	}
	return &respConn{conn, address}
}

// do runs one command and returns its reply, which must not be an error.
func (c *respConn) do(t testing.TB, args ...string) any {
	t.Helper()
	r := c.Do(context.Background(), []Command{{Args: args}})[0]
	if r.Err != nil {
		t.Fatalf("%q: %v", args, r.Err)
	}
	return r.Value
}

// Listen is that of the Conn within.
func (c *respConn) Listen(ctx context.Context, heard func(channel, message string)) (*wire.Listening, error) {
	return c.Conn.(*wire.Server).Listen(ctx, heard)
}
