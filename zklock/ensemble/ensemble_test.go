//go:build soak

package ensemble_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/ensemble"
)

// TestServer: what servers of both versions tell, and let clients do, with nodes for everybody and with nodes for
// their maker only.
func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for version, old := range map[string]bool{"3.8.0": true, "3.9.5": false} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			m := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{
				Old: old, TickTime: 100 * time.Millisecond, MinSession: 500 * time.Millisecond, MaxSession: 20 * time.Second,
			}).Members[0]
			for _, c := range []struct {
				config zklock.Config
				anyone bool
			}{
				{zklock.Config{Prefix: "all"}, true},
				{zklock.Config{Prefix: "open", User: "u", Password: "p", Open: true}, true},
				{zklock.Config{Prefix: "own", User: "u", Password: "p"}, false},
			} {
				c.config.Servers = []string{m.Addr}
				d, err := zklock.New(t.Context(), c.config)
				testserver.Must(t, err)
				d.Close()
				got, err := ensemble.Try(t.Context(), c.config)
				testserver.Must(t, err)
				if *got != (ensemble.Trial{Shortest: 500 * time.Millisecond, Longest: 20 * time.Second, Anyone: c.anyone}) {
					t.Errorf("%s: %+v", c.config.Prefix, got)
				}
			}
			config := zklock.Config{Servers: []string{m.Addr}}
			if s := ensemble.Ask(t.Context(), config)[0]; s.Err != nil || s.Role != "standalone" || s.Version != version {
				t.Errorf("%+v, want version %s", s, version)
			}
			m.Kill()
			if s := ensemble.Ask(t.Context(), config)[0]; s.Err == nil {
				t.Errorf("a server that has ended: %+v", s)
			}
			if got, err := ensemble.Try(t.Context(), config); err == nil {
				t.Errorf("a server that has ended: %+v", got)
			}
		})
	}
}
