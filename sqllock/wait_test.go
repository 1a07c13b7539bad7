package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// TestHandOffMessage: the message that tells of a hand-off tells the whole grant.
func TestHandOffMessage(t *testing.T) {
	const asked = driver.Instant(77)
	for _, tokens := range []int{1, tokenBlock} {
		a := &client{caps: driver.Caps{Poll: time.Second}, waiters: map[string]*waiter{}, statements: newStatements(Postgres, "p", false)}
		b := &client{waiters: map[string]*waiter{}}
		w := &waiter{request: driver.Request{Name: "n", Owner: "an owner", TTL: time.Minute}, woken: make(chan driver.Grant, 1)}
		b.waiters[w.request.Owner] = w
		first := w.request
		first.Tokens = tokens
		behind := first
		behind.Owner = "another"
		now := instant(time.Now().UnixMicro())
		const claim = 700 * time.Millisecond // as long as the place would have lasted
		s := state{last: 5}
		snapshot := &snapshot{row: s.encode(), now: serverTime(now), heads: allPlaces}
		for _, r := range []driver.Request{first, behind} {
			p := placeOf(&record.Place{Request: r, Client: "b", Joined: now, Until: now.Add(claim), Asked: asked})
			snapshot.places = append(snapshot.places, p)
		}
		change, err := a.newChange("n", snapshot)
		if err != nil {
			t.Fatal(err)
		}
		messages := a.messages(change)
		if len(messages) != 1 || messages[0].Args[0] != "b" {
			t.Fatalf("with %d tokens asked for, the messages are %v", tokens, messages)
		}
		payload := messages[0].Args[1].(string)
		b.receive(payload)
		got := <-w.woken
		want := driver.Grant{
			Request: w.request, Token: driver.Token(snapshot.now), Block: tokens, Contended: true,
			Since: asked, Valid: claim, Claim: true,
		}
		if got != want {
			t.Errorf("the message %q is received as\n%+v, want\n%+v", payload, got, want)
		}
	}
	c := &client{waiters: map[string]*waiter{}}
	for _, damaged := range []string{"h", "h 1 2", "h 1 2 maybe 3 4 an owner", "h 1 2 true 3 4", "? 1"} {
		c.receive(damaged)
	}
}

// TestGrantIsOfTheLatestRequest: a waiter asks for its place once more, for a block of tokens. The
// news of its grant is of that request.
func TestGrantIsOfTheLatestRequest(t *testing.T) {
	c := &client{pool: &pool{}, waiters: map[string]*waiter{}}
	req := driver.Request{Name: "n", Owner: "an owner", TTL: time.Minute, Tokens: 1}
	var w *waiter
	for _, req.Tokens = range []int{1, tokenBlock} {
		w = c.expect(req)
	}
	c.receive("h 5 4096 false 1000000 77 an owner")
	select {
	case g := <-w.woken:
		if g.Request != req {
			t.Errorf("the grant is of %+v, want %+v", g.Request, req)
		}
	default:
		t.Error("the news does not come to the waiter")
	}
}

// TestPollerWakesForWhoAskedAgain: a waiter is polled for in time though the poller chose its pause while
// the waiter asked for its place again, for another that is far behind (P7).
func TestPollerWakesForWhoAskedAgain(t *testing.T) {
	far := &waiter{request: driver.Request{Name: "far", Owner: "far"}}
	far.moved(100)
	first := &waiter{request: driver.Request{Name: "first", Owner: "first"}}
	c := &client{
		newcomer: make(chan struct{}, 1), polling: true, // by nobody
		waiters: map[string]*waiter{"far": far, "first": first}, bells: &bells{},
	}
	c.life, c.stop = context.WithCancel(t.Context())
	defer c.stop()
	c.startPollingLocked(far)
	c.startPollingLocked(first)
	c.stopPolling(first) // to ask again
	for len(c.newcomer) > 0 {
		<-c.newcomer
	}
	_, long := c.pollTargets()
	c.startPollingLocked(first)
	if _, short := c.pollTargets(); short >= long {
		t.Fatalf("the test is of no use: the pauses are %v and %v", long, short)
	}
	if len(c.newcomer) == 0 {
		t.Error("P7: the poller does not wake")
	}
}

// TestWokenBySibling: P1: a hold that another client of the process has handed over counts from the last request that was
// answered while the waiter was queued. One whose request is not answered yet finds its hold itself.
func TestWokenBySibling(t *testing.T) {
	p := &pool{}
	c := &client{pool: p, waiters: map[string]*waiter{}}
	w := c.expect(driver.Request{Name: "n", Owner: "an owner", TTL: time.Minute})
	p.wake("an owner", driver.Grant{Token: 5})
	w.placed, w.sent = true, 77
	p.wake("nobody", driver.Grant{Token: 6})
	p.wake("an owner", driver.Grant{Token: 7})
	if g := <-w.woken; g.Token != 7 || g.Since != 77 || w.placed {
		t.Errorf("the grant is %+v, want token 7 from 77 on", g)
	}
	if c.forget("an owner"); len(c.waiters) > 0 {
		t.Error("P9: the waiter is kept")
	}
	p.wake("an owner", driver.Grant{Token: 8})
}
