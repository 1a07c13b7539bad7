//go:build soak

package redislock

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestOldForm: a name that an old client has, waits for or has closed is refused to a new one, which
// changes nothing there and says why. As soon as it is over, the new one takes the name, with tokens
// above the old ones (P1, P3).
func TestOldForm(t *testing.T) {
	const never = 1000 * time.Hour
	for name, c := range map[string]struct {
		use  func(oldClient)
		over time.Duration // after that; 0: at once
	}{
		"a hold": {func(o oldClient) { o.hold("holder") }, 10 * time.Second},
		"a hold that was renewed": {func(o oldClient) {
			o.hold("holder")
			o.p.clock.advance(o.p, 5*time.Second)
			o.run("clock record renew", "holder", "holder", "0")
		}, 10 * time.Second},
		"a hold with a lock-delay": {func(o oldClient) { o.mustAsk("holder", 3*time.Second, replyOK) }, 13 * time.Second},
		"a hold and waiters": {func(o oldClient) {
			o.hold("holder")
			o.mustAsk("waiter", 0, replyHeld)
		}, 10 * time.Second},
		"a claim of a waiter": {func(o oldClient) {
			token := o.hold("holder")
			o.mustAsk("waiter", 0, replyHeld)
			o.release("holder", token)
		}, 2 * time.Second},
		"a hold that was released": {func(o oldClient) {
			o.hold("holder")
			o.p.clock.conn.do(o.p, "HDEL", o.p.layout.record("n"), "h:holder")
		}, 0},
		"a request that was withdrawn": {func(o oldClient) {
			o.release("holder", o.hold("holder"))
			o.release("late", 0)
		}, 0},
		"an even older record":       {func(o oldClient) { o.put("r", "?") }, never},
		"a record that is misshapen": {func(o oldClient) { o.put("p", "?") }, never},
		"a hold that is misshapen":   {func(o oldClient) { o.put("h:holder", "?") }, never},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlainTest(t)
			old, key := oldClient{p}, p.layout.record("n")
			c.use(old)
			began := p.clock.now
			requests := map[string]func(string) (driver.Grant, error){
				"Try":         func(owner string) (driver.Grant, error) { return p.Try(t.Context(), p.request(owner)) },
				"Enqueue":     func(owner string) (driver.Grant, error) { return p.Enqueue(t.Context(), p.request(owner)) },
				"Try, shared": func(owner string) (driver.Grant, error) { return p.Try(t.Context(), p.shared(owner)) },
			}
			refused := func() {
				t.Helper()
				hash := p.clock.conn.do(t, "HGETALL", key)
				for what, request := range requests {
					g, err := request(what)
					if err == nil || !strings.Contains(err.Error(), "older version") || errors.Is(err, driver.ErrUncertain) {
						t.Errorf("%s gave %+v, %v", what, g, err)
					}
				}
				if info, err := p.Inspect(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "older version") {
					t.Errorf("Inspect gave %+v, %v", info, err)
				}
				theirs := driver.Grant{Request: p.request("holder"), Token: 1}
				for what, err := range map[string]error{
					"Renew":     p.Renew(t.Context(), []driver.Grant{theirs})[0].Err,
					"Release":   p.Release(t.Context(), []driver.Grant{theirs})[0],
					"Break":     p.Break(t.Context(), "n", 1),
					"Annotate":  p.Annotate(t.Context(), theirs),
					"Downgrade": func() error { _, err := p.Downgrade(t.Context(), theirs); return err }(),
				} {
					if err == nil || !strings.Contains(err.Error(), "another version") {
						t.Errorf("%s: %v", what, err)
					}
				}
				if after := p.clock.conn.do(t, "HGETALL", key); !reflect.DeepEqual(after, hash) {
					t.Errorf("the hash was changed from %q to %q", hash, after)
				}
			}
			if c.over > 0 {
				refused()
				if c.over == never {
					return
				}
				p.clock.advance(t, began.Add(c.over-100*time.Millisecond).Sub(p.clock.now))
				refused()
				p.clock.advance(t, began.Add(c.over).Sub(p.clock.now))
			}
			text, _ := p.clock.conn.do(t, "HGET", key, "last").(string)
			last, err := strconv.ParseInt(text[:16], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := p.Inspect(t.Context(), "n"); err != nil || !info.Idle() {
				t.Errorf("when it is over Inspect gives %+v, %v", info, err)
			}
			if name == "a hold that was released" {
				p.clock.advance(t, -time.Minute)
			}
			g, err := p.Try(t.Context(), p.request("new"))
			if err != nil || int64(g.Token) <= last {
				t.Fatalf("when it is over Try gives %+v, %v after token %d", g, err, last)
			}
			p.refusesOld()
			p.release(g, nil)
		})
	}
}

// TestOldClient: whatever a new client has left of a name, an old one is refused.
func TestOldClient(t *testing.T) {
	for name, use := range map[string]func(*plainTest){
		"a plain hold":  func(p *plainTest) { p.take(p.request("holder")) },
		"an idle name":  func(p *plainTest) { p.release(p.take(p.request("holder")), nil) },
		"a tombstone":   func(p *plainTest) { p.release(driver.Grant{Request: p.request("late")}, nil) },
		"a broken hold": func(p *plainTest) { p.Break(p.Context(), "n", p.take(p.request("holder")).Token) },
		"shared holds": func(p *plainTest) {
			for _, owner := range []string{"a", "b"} {
				if _, err := p.Try(p.Context(), p.shared(owner)); err != nil {
					p.Error(err)
				}
			}
		},
		"waiters": func(p *plainTest) {
			p.take(p.request("holder"))
			for _, owner := range []string{"a", "b"} {
				if _, err := p.Enqueue(p.Context(), p.request(owner)); !errors.Is(err, driver.ErrHeld) {
					p.Error(err)
				}
			}
		},
		"an expired hold": func(p *plainTest) {
			p.take(p.request("holder"))
			p.clock.advance(p, time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlainTest(t)
			use(p)
			p.refusesOld()
		})
	}
}
