//go:build soak

package mysqlconn

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestBusy: a busy client keeps its leases, though replies are late (P2).
func TestBusy(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		proxy := chaos.StartProxy(t, server.Addr)
		busytest.Run(t, func(by time.Duration) { proxy.Delay(chaos.ToClient, by) }, func() *holdfast.Client {
			locks, err := holdfast.Open(t.Context(), strings.Replace(server.URL(), server.Addr, proxy.Addr, 1))
			must(t, err)
			return locks
		})
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others (P2), also when all
// connections were lost before.
func TestFullPool(t *testing.T) {
	onEach(t, func(t *testing.T, server *testserver.MySQL) {
		admin := openDB(t, server, "")
		for name, kill := range map[string]func(){"full": nil, "full after an outage": func() { killAll(t, admin) }} {
			t.Run(name, func(t *testing.T) {
				db := openDB(t, server, "?interpolateParams=true&multiStatements=true")
				db.SetMaxOpenConns(4)
				sqltest.FullPool(t, db, overPool(t, db), kill)
			})
		}
	})
}
