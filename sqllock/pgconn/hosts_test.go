//go:build soak

package pgconn

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestFirstHost: hosts are tried in order, beginning with one of them; the first that answers is used, and
// if none does the error has the reasons of all.
func TestFirstHost(t *testing.T) {
	t.Parallel()
	config, _, err := parse(&url.URL{Scheme: "postgres", Host: "a,b:1,c", Path: "/x", RawQuery: "sslmode=prefer"})
	must(t, err)
	hosts := byHost(config)
	if len(hosts) != 3 || hosts[1].Host != "b" || hosts[1].Port != 1 || hosts[1].TLSConfig == nil || len(hosts[1].Fallbacks) != 1 {
		t.Fatalf("%d hosts, the second is %+v", len(hosts), hosts[1])
	}
	failed := errors.New("refused")
	for _, c := range []struct {
		begin int
		good  string
		tried string
	}{{0, "a", "a"}, {1, "a", "bca"}, {2, "b", "cab"}, {0, "", "abc"}} {
		tried := make(chan string, len(hosts))
		conn, host, err := firstHost(t.Context(), hosts, c.begin, func(_ context.Context, one *pgx.ConnConfig) (string, error) {
			tried <- one.Host
			if one.Host == c.good {
				return one.Host, nil
			}
			return "", failed
		}, func(string) {})
		close(tried)
		order := ""
		for h := range tried {
			order += h
		}
		if order != c.tried || conn != c.good || (err == nil) != (c.good != "") || err == nil && hosts[host].Host != c.good {
			t.Errorf("%+v: tried %s, got %q, %v", c, order, conn, err)
		}
	}
	// A connection that comes too late is discarded.
	discarded := make(chan string, 1)
	both := make(chan struct{})
	conn, _, err := firstHost(t.Context(), hosts[:2], 0, func(_ context.Context, one *pgx.ConnConfig) (string, error) {
		if one.Host == "b" {
			return "b", nil
		}
		<-both
		return "a", nil
	}, func(late string) { discarded <- late })
	close(both)
	if late := <-discarded; conn != "b" || late != "a" || err != nil {
		t.Errorf("got %q, %v, and discarded %q", conn, err, late)
	}
}
