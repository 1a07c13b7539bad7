package celllock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// handClock is a clock that the test moves.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() driver.Instant { return driver.Instant(c.now.Load()) }

// TestUnheardHolder: a holder hears nothing for as long as its session lasts, and gives the session up. The cell
// still has the hold, so a renewal does not say that the hold is gone (P4).
func TestUnheardHolder(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Members[0].Addr)
	clock := &handClock{}
	clock.now.Store(int64(time.Hour))
	of, err := cell.New(cell.Config{Members: []string{proxy.Addr}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	made, err := New(t.Context(), of, nil)
	if err != nil {
		t.Fatal(err)
	}
	holder := made.(*client)
	defer holder.Close()
	r := driver.Request{Name: "n", Owner: "a", TTL: 10 * time.Minute}
	g, err := holder.Try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	clock.now.Add(int64(r.TTL + time.Second))
	over := func() bool {
		holder.mu.Lock()
		defer holder.mu.Unlock()
		return holder.sessions[classOf(&r)].over
	}
	for end := time.Now().Add(time.Minute); !over(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("P2: the session is not given up by the client's clock")
		}
	}
	proxy.Heal()
	renewal := holder.Renew(t.Context(), []driver.Grant{g})[0].Err
	other := dial(t, server.Members[0].Addr)
	defer other.Close()
	_, err = other.Try(t.Context(), driver.Request{Name: "n", Owner: "b", TTL: time.Minute})
	if renewal == nil || driver.Gone(renewal) {
		t.Errorf("P4: the cell has the hold, and its renewal returned %v", renewal)
	}
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: the cell has the hold, and another Try returned %v", err)
	}
}
