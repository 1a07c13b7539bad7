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
	return &plainTest{t, open(t, dialResp(t, server.Addr), &Options{Clock: clock, MaxTTL: 48 * time.Hour}), clock}
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
