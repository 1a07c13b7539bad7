//go:build soak

package ensemble_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/ensemble"
)

// versions runs a test on servers of both versions.
func versions(t *testing.T, test func(*testing.T, testserver.ZooKeeperOptions)) {
	for _, old := range []bool{true, false} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			test(t, testserver.ZooKeeperOptions{Old: old, TickTime: 100 * time.Millisecond, MinSession: 500 * time.Millisecond, MaxSession: 20 * time.Second})
		})
	}
}

func port(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAsk: a server tells the same by commands of four letters and by its admin server, unless both are
// switched off.
func TestAsk(t *testing.T) {
	versions(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		o.Admin = true
		want := map[string]string{"": "conf and mntr", "srvr": "the admin server", "none": "the admin server"}
		for letters, source := range want {
			o.FourLetters, o.MaxBuffer = letters, 1<<19
			if letters == "none" {
				continue // the ready-wait of the server itself needs srvr
			}
			m := testserver.StartZooKeeper(t, o).Members[0]
			s := ensemble.Ask(t.Context(), zklock.Config{Servers: []string{m.Addr}, Admin: port(t, m.Admin)})[0]
			version := "3.9.5"
			if o.Old {
				version = "3.8.0"
			}
			if s.Err != nil || s.Role != "standalone" || s.Version != version || s.Source != source {
				t.Errorf("%q allowed: %+v; want version %s from %s", letters, s, version, source)
			}
			for name, want := range map[string]float64{
				"tick_time": 100, "min_session_timeout": 500, "max_session_timeout": 20_000, "max_client_cnxns": 0, "outstanding_requests": 0,
			} {
				if got, ok := s.Number(name); !ok || got != want {
					t.Errorf("%q allowed: %s is %v, %v; want %v", letters, name, got, ok, want)
				}
			}
			if _, ok := s.Number("max_fsynctime"); !ok {
				t.Errorf("%q allowed: no max_fsynctime", letters)
			}
			if source == "the admin server" && s.Values["jute.maxbuffer"] != strconv.Itoa(o.MaxBuffer) {
				t.Errorf("jute.maxbuffer is %q", s.Values["jute.maxbuffer"])
			}
			if s := ensemble.Ask(t.Context(), zklock.Config{Servers: []string{m.Addr}, Admin: 1})[0]; letters == "srvr" && (s.Role != "standalone" || s.Source != "" || s.Err != nil) {
				t.Errorf("without an admin server: %+v", s)
			}
			m.Kill()
			if s := ensemble.Ask(t.Context(), zklock.Config{Servers: []string{m.Addr}, Admin: 1})[0]; s.Err == nil {
				t.Errorf("a server that has ended: %+v", s)
			}
		}
	})
}

// TestTry: what is measured and tried, with nodes for everybody, and with nodes for their maker only.
func TestTry(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	versions(t, func(t *testing.T, o testserver.ZooKeeperOptions) {
		o.MaxBuffer = 1 << 17
		m := testserver.StartZooKeeper(t, o).Members[0]
		all := []string{"read", "change", "create beside", "delete"}
		for _, c := range []struct {
			config zklock.Config
			others []string
		}{
			{zklock.Config{Prefix: "all"}, all},
			{zklock.Config{Prefix: "open", User: "u", Password: "p", Open: true}, all},
			{zklock.Config{Prefix: "own", User: "u", Password: "p"}, nil},
		} {
			c.config.Servers = []string{m.Addr}
			d, err := zklock.New(t.Context(), c.config)
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
			got, err := ensemble.Try(t.Context(), c.config)
			if err != nil {
				t.Fatal(err)
			}
			if got.Shortest != 500*time.Millisecond || got.Longest != 20*time.Second || len(got.Writes) == 0 || got.Request != 64<<10 || got.AnyServer {
				t.Errorf("%s: %+v", c.config.Prefix, got)
			}
			if !slices.Equal(got.Others, c.others) {
				t.Errorf("%s: others may %q, want %q", c.config.Prefix, got.Others, c.others)
			}
		}
		m.Kill()
		if got, err := ensemble.Try(t.Context(), zklock.Config{Servers: []string{m.Addr}}); err == nil {
			t.Errorf("a server that has ended: %+v", got)
		}
	})
}

// TestTryElsewhere: a leader that takes no clients.
func TestTryElsewhere(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, NoLeaderClients: true})
	var c zklock.Config
	for _, m := range z.Members {
		c.Servers = append(c.Servers, m.Addr)
	}
	d, err := zklock.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	got, err := ensemble.Try(t.Context(), c)
	if err != nil || !got.AnyServer {
		t.Errorf("%+v, %v; want a session elsewhere", got, err)
	}
	mute := 0
	for _, s := range ensemble.Ask(t.Context(), c) {
		if s.Role == "not serving" {
			mute++
		}
	}
	if mute != 1 {
		t.Errorf("%d servers do not serve, want one: the leader", mute)
	}
}
