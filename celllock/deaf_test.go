package celllock

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestUnheardSession: a client from which all answers are kept ends its session by its own clock, and does not ask the
// cell to keep it any longer.
func TestUnheardSession(t *testing.T) {
	t.Parallel()
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Members[0].Addr)
	c, err := cell.New(cell.Config{Members: []string{proxy.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Open(t.Context(), cell.SessionOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	proxy.HoldReplies()
	for end := time.Now().Add(time.Minute); s.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("P5: a session that no member extends is offered again and again")
		}
	}
	if !errors.Is(s.Err(), cell.ErrSessionOver) {
		t.Error(s.Err())
	}
}
