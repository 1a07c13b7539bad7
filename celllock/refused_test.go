//go:build soak

package celllock

import (
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRefusedByAnother: a request for a place does not arrive at one member, and another one refuses it. The first may
// do it yet, so nobody knows what becomes of it, and it must be withdrawn (P6).
func TestRefusedByAnother(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: quick})
	link := chaos.StartProxy(t, server.Members[0].Addr)
	other := dial(t, server.Members[1].Addr)
	defer other.Close()
	d := dial(t, link.Addr+","+server.Members[1].Addr)
	defer d.Close()
	slot := requestFor("used otherwise")
	slot.Mode, slot.Slots, slot.Permits = driver.Slot, 2, 1
	if _, err := other.Try(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Try(t.Context(), requestFor("a session")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enqueue(t.Context(), requestFor("used otherwise")); !errors.Is(err, driver.ErrMismatch) {
		t.Fatalf("a member that is asked alone says %v", err)
	}
	link.Hold(chaos.ToServer, "")
	if _, err := d.Enqueue(t.Context(), requestFor("used otherwise")); !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: a request that is under way at one member, and is refused by another, says %v", err)
	}
	link.Heal()
}
