package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// A note is any text: no byte of it ends it, and it stays as it is when the hold
// is renewed.
func TestNoteStaysWhole(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	d, err := New(t.Context(), dialResp(t, server.Addr), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	note := " a\x00b\n c 1 2 3 %d\r\n "
	g, err := d.Try(t.Context(), driver.Request{Name: "a", Owner: "o", TTL: time.Minute, Note: note})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
			t.Fatal(err)
		}
		info, err := d.(driver.Inspector).Inspect(t.Context(), "a")
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Note != note {
			t.Fatalf("after a renewal there is %+v, error %v", info.Holders, err)
		}
	}
}

// A key that another program has overwritten spoils the hold of that name, and no
// other of the batch.
func TestForeignKeySpoilsNoBatch(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	conn := dialResp(t, server.Addr)
	d, err := New(t.Context(), conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var grants []driver.Grant
	for _, name := range []string{"a", "b", "c"} {
		g, err := d.Try(t.Context(), driver.Request{Name: name, Owner: "o" + name, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	conn.do(t, "SET", "holdfast:{a}", "foreign")
	for i, r := range d.Renew(t.Context(), grants) {
		if (r.Err != nil) != (i == 0) {
			t.Errorf("renewing %s: %v", grants[i].Name, r.Err)
		}
	}
	for i, err := range d.Release(t.Context(), grants) {
		if (err != nil) != (i == 0) {
			t.Errorf("releasing %s: %v", grants[i].Name, err)
		}
	}
}

// A live record of the format from before minimum holds is refused, in words that say
// why: what is read at the wrong places might let a second holder in (P1).
func TestOtherVersionIsRefused(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	conn := dialResp(t, server.Addr)
	d, err := New(t.Context(), conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const before = `local now = redis.call('TIME')[1] * 1000000
local hold = {'theirs', '', 1, 0, 0, 60000000, 0, '', now, now, now + 60000000}
redis.call('HSET', KEYS[1], 'last', string.format('%016d%d', now, now + 1500000000), 'r', cmsgpack.pack({0, {hold}, {}}))`
	for _, name := range []string{"a", "b"} {
		conn.do(t, "EVAL", before, "1", "holdfast:{"+name+"}")
	}
	g := driver.Grant{Request: driver.Request{Name: "a", Owner: "theirs", Mode: driver.Shared, TTL: time.Minute}, Token: 1}
	exclusive, shared := driver.Request{Name: "a", Owner: "o", TTL: time.Minute}, driver.Request{Name: "b", Owner: "p", Mode: driver.Shared, TTL: time.Minute}
	for what, ask := range map[string]func() error{
		"Try":         func() error { _, err := d.Try(t.Context(), exclusive); return err },
		"Try, shared": func() error { _, err := d.Try(t.Context(), shared); return err },
		"Enqueue":     func() error { _, err := d.(driver.Queuer).Enqueue(t.Context(), exclusive); return err },
		"Renew":       func() error { return d.Renew(t.Context(), []driver.Grant{g})[0].Err },
		"Release":     func() error { return d.Release(t.Context(), []driver.Grant{g})[0] },
		"Inspect":     func() error { _, err := d.(driver.Inspector).Inspect(t.Context(), "a"); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "another version of Holdfast") {
			t.Errorf("%s at a lock of another version: %v", what, err)
		}
	}
}
