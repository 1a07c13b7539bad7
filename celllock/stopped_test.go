//go:build soak

package celllock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestMemberStandsStill: a client whose member stands still gets what may be repeated done by another one, long before its
// connection is given up.
func TestMemberStandsStill(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: quick})
	follower := server.Followers()[0]
	addrs := slices.DeleteFunc(strings.Split(server.Addrs(), ","), func(a string) bool { return a == follower.Addr })
	d := dial(t, strings.Join(append([]string{follower.Addr}, addrs...), ","))
	defer d.Close()
	g, err := d.Try(t.Context(), requestFor("stands"))
	if err != nil {
		t.Fatal(err)
	}
	follower.Pause()
	defer follower.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // the connection is given up after seven
	defer cancel()
	if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil {
		t.Errorf("P4: a release while the client's member stands still: %v", err)
	}
	if _, err := d.Inspect(ctx, "stands"); err != nil {
		t.Errorf("P7: another member is not asked: %v", err)
	}
}
