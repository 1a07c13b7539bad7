package redislock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func open(t *testing.T, conn Conn, o *Options) *client {
	t.Helper()
	d, err := New(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.(*client)
}

// TestGrantIsOfTheLatestRequest: a waiter asks for its place once more, for a block of tokens and with
// another note. The news of its grant is of that request.
func TestGrantIsOfTheLatestRequest(t *testing.T) {
	c := &client{link: &link{}, waiters: map[string]*waiter{}}
	req := driver.Request{Name: "n", Owner: "owner", TTL: time.Minute, Tokens: 1}
	if !c.addWaiter(req) {
		t.Fatal("the waiter was there already")
	}
	req.Tokens, req.Note = tokenBlock, "another note"
	if c.addWaiter(req) {
		t.Fatal("the waiter was not there")
	}
	c.receive("g 5 1000000 77 4096 0 owner")
	select {
	case g := <-c.waiters[req.Owner].news:
		if g.Request != req {
			t.Errorf("the grant is of %+v, want %+v", g.Request, req)
		}
	default:
		t.Error("the news does not come to the waiter")
	}
}
