//go:build soak

package celllock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestReleaseIsRepeated: a member releases a hold, and its answer is lost. The client makes the same call at
// another member, for which there is no hold any more. It has been released all the same (P4).
func TestReleaseIsRepeated(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	first, second := chaos.StartProxy(t, server.Addrs()), chaos.StartProxy(t, server.Addrs())
	c, other := dial(t, first.Addr+","+second.Addr), dial(t, server.Addrs())
	t.Cleanup(func() { c.Close(); other.Close() })
	g, err := c.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	first.HoldReplies()
	released := make(chan error, 1)
	go func() { released <- c.Release(t.Context(), []driver.Grant{g})[0] }()
	for {
		next, err := other.Try(t.Context(), driver.Request{Name: "n", Owner: "p", TTL: time.Minute})
		if err == nil {
			other.Release(t.Context(), []driver.Grant{next})
			break
		}
	}
	first.Cut()
	if err := <-released; err != nil {
		t.Errorf("P4: a release whose answer was lost, and which was repeated, says %v", err)
	}
}
