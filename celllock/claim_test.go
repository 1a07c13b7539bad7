//go:build soak

package celllock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestClaimEndsWithItsSession: suppose that places were confirmed just now, by a call about one request, and
// that the session itself was extended long ago. When it ends its claims end with it, so they are not trusted
// for longer (P1).
func TestClaimEndsWithItsSession(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	c := dial(t, server.Addrs())
	t.Cleanup(func() { c.Close() })
	request := driver.Request{Name: "n", Owner: "o", TTL: time.Second}
	s, err := c.sessionFor(t.Context(), &request)
	if err != nil {
		t.Fatal(err)
	}
	s.Abandon() // nothing extends it from here on
	trusted, _ := s.Trusted()
	end := trusted.Since.Add(trusted.Valid)
	r := &record{session: s, has: &cellv1.Holding{Claim: true}, places: cell.Extension{Since: end.Add(-100 * time.Millisecond), Valid: 2 * time.Second}}
	if since, valid := r.lastsLocked(request.TTL); since.Add(valid) > end {
		t.Errorf("P1: a claim is trusted for %v longer than its session", since.Add(valid).Sub(end))
	}
}
