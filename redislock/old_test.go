package redislock

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// oldClient runs the scripts of the versions that kept a name in one hash. Their texts are in
// testdata/hash, as those versions had them.
type oldClient struct{ p *plainTest }

// run runs a script of these files on a name, by the clock that is moved by hand.
func (o oldClient) run(files, owner string, args ...string) (any, error) {
	o.p.Helper()
	text := ""
	for _, file := range strings.Fields(files) {
		b, err := os.ReadFile(filepath.Join("testdata", "hash", file+".lua"))
		if err != nil {
			o.p.Fatal(err)
		}
		text += string(b)
	}
	text = strings.Replace(text, "call('TIME')", "{0, redis.call('GET', '"+clockKey+"')}", 1)
	record := o.p.layout.record("n")
	reply := o.p.clock.conn.Do(o.p.Context(), []Command{{
		Args: append([]string{"EVAL", text, "2", record, record + ":gone:" + owner}, args...),
	}})[0]
	return reply.Value, reply.Err
}

// ask asks for an exclusive hold, or a place.
func (o oldClient) ask(owner string, delay time.Duration) (any, error) {
	text := "0 10000000 " + decimal(micros(delay)) + "  its note"
	rest := "0 0 0 0 " + decimal(int64(o.p.clock.now)) + " 1000000 0 1 1"
	return o.run("clock record ask", owner, "h:"+owner, text, rest)
}

func (o oldClient) take(owner string) (any, error) {
	return o.run("clock idle take", owner, "h:"+owner, "0 10000000 0  its note")
}

// hold takes the idle name.
func (o oldClient) hold(owner string) (token int64) {
	o.p.Helper()
	reply, err := o.take(owner)
	token, ok := reply.(int64)
	if !ok {
		o.p.Fatalf("the old client took an idle name and got %v, %v", reply, err)
	}
	return token
}

func (o oldClient) mustAsk(owner string, delay time.Duration, want int64) {
	o.p.Helper()
	if reply, err := o.ask(owner, delay); err != nil || reply.([]any)[0] != want {
		o.p.Fatalf("the old client asked and got %v, %v", reply, err)
	}
}

// release releases or withdraws.
func (o oldClient) release(owner string, token int64) {
	o.p.Helper()
	refuse := "0"
	if token == 0 {
		refuse = "60000000"
	}
	if reply, err := o.run("clock record release", owner, owner, decimal(token), "0", refuse); err != nil {
		o.p.Fatalf("the old client released and got %v, %v", reply, err)
	}
}

// put writes a field of the hash.
func (o oldClient) put(field, value string) {
	o.p.clock.conn.do(o.p, "HSET", o.p.layout.record("n"), field, value)
}

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

// shared is a request for a shared hold.
func (p *plainTest) shared(owner string) driver.Request {
	req := p.request(owner)
	req.Mode = driver.Shared
	return req
}

// refusesOld checks that an old client can do nothing with the name, and changes nothing.
func (p *plainTest) refusesOld() {
	p.Helper()
	dump := func() (all []any) {
		for i, key := range p.layout.keys("n") {
			command := []string{"ZRANGE", key, "0", "-1", "WITHSCORES"}
			if suffixes[i] == ":places" {
				command = []string{"HGETALL", key}
			}
			all = append(all, p.clock.conn.do(p, command...))
		}
		return all
	}
	before, old := dump(), oldClient{p}
	for what, try := range map[string]func() (any, error){
		"take": func() (any, error) { return old.take("old") },
		"ask":  func() (any, error) { return old.ask("old", 0) },
		"ask first": func() (any, error) {
			return old.run("clock idle record ask", "old", "h:old", "0 10000000 0  ", "0 0 0 0 0 1000000 0 1 1")
		},
		"break":     func() (any, error) { return old.run("clock record break", "old", "1") },
		"downgrade": func() (any, error) { return old.run("clock record downgrade", "old", "old") },
		"HDEL": func() (any, error) {
			r := p.clock.conn.Do(p.Context(), []Command{{Args: []string{"HDEL", p.layout.record("n"), "h:old"}}})[0]
			return r.Value, r.Err
		},
		"renew": func() (any, error) { return item(old.run("clock record renew", "old", "old", "0")) },
		"release": func() (any, error) {
			return item(old.run("clock record release", "old", "old", "1", "0", "0"))
		},
	} {
		if reply, err := try(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			p.Errorf("an old client's %s gave %v, %v", what, reply, err)
		}
	}
	if after := dump(); !reflect.DeepEqual(after, before) {
		p.Errorf("an old client has changed %q to %q", before, after)
	}
}

// item returns the error of the one item of a batch.
func item(reply any, err error) (any, error) {
	if items, ok := reply.([]any); ok && len(items) == 1 {
		if text, ok := items[0].(string); ok {
			return nil, errors.New(text)
		}
	}
	return reply, err
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
