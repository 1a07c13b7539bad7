package redislock

import (
	"context"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// TestDurable: a server is durable if it syncs each write. One that does not tell its settings is believed.
func TestDurable(t *testing.T) {
	for name, c := range map[string]struct {
		o    testserver.RedisOptions
		want bool
	}{
		"no file":     {testserver.RedisOptions{}, false},
		"each second": {testserver.RedisOptions{AOF: true, Args: []string{"--appendfsync", "everysec"}}, false},
		"each write":  {testserver.RedisOptions{AOF: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := testserver.StartRedis(t, c.o)
			is := func(what string, want bool) {
				t.Helper()
				d, err := New(context.Background(), dialResp(t, server.Addr), nil)
				testserver.Must(t, err)
				defer d.Close()
				v, ok := driver.As[vote.Keeper](d)
				if !ok {
					t.Fatal("the driver does not tell")
				}
				if got, err := v.Durable(t.Context()); err != nil || got != want {
					t.Errorf("%s: durable: %v, %v, want %v", what, got, err, want)
				}
			}
			is("with the right to ask", c.want)
			server.Ask("ACL", "SETUSER", "default", "-config")
			is("without the right to ask", true)
		})
	}
}
