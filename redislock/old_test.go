package redislock

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
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
