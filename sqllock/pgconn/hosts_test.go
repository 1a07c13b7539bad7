//go:build soak

package pgconn

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestConnectTo: hosts are tried in order, beginning with the one that was used last; the first that answers is
// used, and if none does the error has the reasons of all.
func TestConnectTo(t *testing.T) {
	t.Parallel()
	config, _, err := parse(&url.URL{Scheme: "postgres", Host: "a,b:1,c", Path: "/x", RawQuery: "sslmode=prefer"})
	must(t, err)
	hosts := byHost(config)
	if len(hosts) != 3 || hosts[1].Host != "b" || hosts[1].Port != 1 || hosts[1].TLSConfig == nil || len(hosts[1].Fallbacks) != 1 {
		t.Fatalf("%d hosts, the second is %+v", len(hosts), hosts[1])
	}
	failed := errors.New("refused")
	for _, c := range []struct {
		begin int32
		good  string
		tried string
	}{{0, "a", "a"}, {1, "a", "bca"}, {2, "b", "cab"}, {0, "", "abc"}} {
		order := ""
		var last atomic.Int32
		last.Store(c.begin)
		conn, err := connectTo(t.Context(), config, &last, func(_ context.Context, one *pgx.ConnConfig) (string, error) {
			order += one.Host
			if one.Host == c.good {
				return one.Host, nil
			}
			return "", failed
		})
		if order != c.tried || conn != c.good || (err == nil) != (c.good != "") || err == nil && hosts[last.Load()].Host != c.good {
			t.Errorf("%+v: tried %s, got %q, %v", c, order, conn, err)
		}
	}
	// One whose time is over at a silent host leaves the next one to the next caller.
	var last atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := connectTo(ctx, config, &last, func(context.Context, *pgx.ConnConfig) (string, error) {
		cancel()
		return "", failed
	}); err == nil || last.Load() != 1 {
		t.Errorf("after a silent host: %v, and the next is host %d", err, last.Load())
	}
}
