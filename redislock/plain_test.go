package redislock

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// plainTest has a client, and a server whose clock is moved by hand.
type plainTest struct {
	*testing.T
	*client
	clock *handClock
}

func newPlainTest(t *testing.T) *plainTest {
	server := shared(t)
	withHandClock(t)
	clock := &handClock{conn: dialResp(t, server.Addr)}
	t.Cleanup(func() { clock.conn.Close() })
	clock.advance(t, 1_000_000*time.Second)
	return &plainTest{t, open(t, dialResp(t, server.Addr), &Options{Clock: clock}), clock}
}

func (p *plainTest) request(owner string) driver.Request {
	p.clock.advance(p, time.Millisecond)
	return driver.Request{Name: "n", Owner: owner, TTL: 10 * time.Second}
}

// take takes a plain hold.
func (p *plainTest) take(req driver.Request) driver.Grant {
	p.Helper()
	g, err := p.Try(p.Context(), req)
	if err != nil || g.Handle != (plain{}) {
		p.Fatalf("Try of an idle name gave %+v, %v", g, err)
	}
	return g
}

func (p *plainTest) release(g driver.Grant, want error) {
	p.Helper()
	if err := p.Release(p.Context(), []driver.Grant{g})[0]; !errors.Is(err, want) {
		p.Errorf("Release returned %v, not %v", err, want)
	}
}

func (p *plainTest) try(owner string, want error) (g driver.Grant) {
	p.Helper()
	g, err := p.Try(p.Context(), p.request(owner))
	if !errors.Is(err, want) {
		p.Errorf("Try of %s returned %v, not %v", owner, err, want)
	}
	return g
}

// TestPlainRelease: if ZREM is not enough, the script releases the hold.
func TestPlainRelease(t *testing.T) {
	for name, check := range map[string]func(*plainTest){
		"all answered": func(p *plainTest) {
			g := p.take(p.request("owner"))
			p.release(g, nil)
			p.release(p.take(p.request("owner")), nil) // no tombstone was left
		},
		"stray": func(p *plainTest) {
			g := p.take(p.request("owner"))
			g.Stray = true
			p.release(g, nil)
			p.try("owner", driver.ErrNotHeld) // P6: too late
		},
		"withdrawn": func(p *plainTest) {
			g := p.take(p.request("owner"))
			g.Token = 0
			p.release(g, nil)
			p.try("owner", driver.ErrNotHeld) // P6
		},
		"minimum hold": func(p *plainTest) {
			g := p.take(p.request("owner"))
			g.MinHold = time.Second
			p.release(g, nil)
			p.try("next", driver.ErrHeld)
			p.clock.advance(p, time.Second)
			p.release(p.try("next", nil), nil)
		},
		"lock-delay": func(p *plainTest) {
			req := p.request("owner")
			req.LockDelay = time.Second
			g := p.take(req)
			p.clock.advance(p, g.TTL)
			p.release(g, driver.ErrNotHeld)
			p.try("early", driver.ErrHeld) // P5: closed since the expiry
			p.clock.advance(p, time.Second)
			p.release(p.try("next", nil), nil)
		},
		"broken": func(p *plainTest) {
			g := p.take(p.request("owner"))
			if err := p.Break(p.Context(), "n", g.Token); err != nil {
				p.Fatal(err)
			}
			p.release(g, driver.ErrBroken)
		},
	} {
		t.Run(name, func(t *testing.T) { check(newPlainTest(t)) })
	}
}

// TestPlainIsFreedByItsOwnerOnly: a release that comes after the expiry frees nothing (P4).
func TestPlainIsFreedByItsOwnerOnly(t *testing.T) {
	p := newPlainTest(t)
	late := p.take(p.request("late"))
	p.clock.advance(t, late.TTL)
	next := p.try("next", nil)
	p.release(late, driver.ErrNotHeld)
	p.try("third", driver.ErrHeld)
	if r := p.Renew(p.Context(), []driver.Grant{next})[0]; r.Err != nil {
		t.Errorf("after a late release the hold cannot be renewed: %v", r.Err)
	}
	p.release(next, nil)
	p.release(p.take(p.request("third")), nil)
}

// TestPlainIsHandedOver: a waiter came after the hold was taken, and the release hands over to it.
func TestPlainIsHandedOver(t *testing.T) {
	p := newPlainTest(t)
	g := p.take(p.request("holder"))
	req := p.request("waiter")
	if _, err := p.Enqueue(p.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	p.release(g, nil)
	next, err := p.Wait(p.Context(), req)
	if err != nil || next.Token <= g.Token {
		t.Errorf("the waiter got %+v, %v after token %d", next, err, g.Token)
	}
	p.release(next, nil)
}

// TestPlainTokens: tokens grow although the clock goes back, and the key is kept
// for as long as they may have to (P3), and not for ever (P9).
func TestPlainTokens(t *testing.T) {
	p := newPlainTest(t)
	kept := func(step string, least time.Duration) {
		t.Helper()
		ms, _ := p.clock.conn.do(t, "PTTL", p.layout.record("n")).(int64)
		if left := time.Duration(ms) * time.Millisecond; left < least-time.Second || left > least+time.Hour {
			t.Errorf("after %s the key is kept for %v, not for %v or somewhat more", step, left, least)
		}
		// The record has that too, by the clock that is moved by hand.
		until, err := int64(0), error(nil)
		for _, member := range p.clock.conn.do(t, "ZRANGE", p.layout.record("n"), "0", "-1").([]any) {
			if end, ok := strings.CutPrefix(member.(string), "e:"); ok {
				until, err = strconv.ParseInt(end, 10, 64)
			}
		}
		if left := duration(until) - time.Duration(p.clock.now); err != nil || left < least {
			t.Errorf("after %s the record says that it is kept for %v, not for %v", step, left, least)
		}
	}
	const idle = 10 * time.Minute
	last := driver.Token(0)
	for i := range 10 {
		if i%3 == 2 {
			p.clock.advance(t, -time.Minute)
		} else {
			p.clock.advance(t, time.Duration(i)*time.Minute)
		}
		req := p.request("owner")
		if i%2 == 1 {
			req.TTL, req.LockDelay = 2*time.Minute, 2*time.Minute
		}
		g, err := p.Try(p.Context(), req)
		if err != nil || g.Token <= last {
			t.Fatalf("Try %d gave token %d after %d, %v", i, g.Token, last, err)
		}
		last = g.Token
		kept("Try", req.TTL+req.LockDelay+idle)
		if r := p.Renew(p.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		kept("Renew", req.TTL+req.LockDelay+idle)
		p.release(g, nil)
		kept("Release", idle)
	}
	long := p.request("long")
	long.TTL = 24 * time.Hour
	g := p.try("short", nil)
	p.release(g, nil)
	if _, err := p.Try(p.Context(), long); err != nil {
		t.Fatal(err)
	}
	kept("a long Try", long.TTL+idle)
}
