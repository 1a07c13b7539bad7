package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// redissonTest has a driver of the layout Redisson, and a stranger that reads and writes its keys.
type redissonTest struct {
	*testing.T
	redisson
	server   *testserver.Redis
	stranger *respConn
}

func newRedissonTest(t *testing.T) *redissonTest {
	server := shared(t)
	d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: Redisson})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	stranger := dialResp(t, server.Addr)
	t.Cleanup(func() { stranger.Close() })
	return &redissonTest{t, d.(redisson), server, stranger}
}

func (r *redissonTest) do(args ...string) any {
	r.Helper()
	return r.stranger.do(r, args...)
}

// all runs commands.
func (r *redissonTest) all(commands ...string) {
	r.Helper()
	for _, command := range commands {
		r.do(strings.Fields(command)...)
	}
}

// is asserts what commands reply.
func (r *redissonTest) is(want map[string]any) {
	r.Helper()
	for command, want := range want {
		if got := r.do(strings.Fields(command)...); fmt.Sprint(got) != fmt.Sprint(want) {
			r.Errorf("%s: %v, not %v", command, got, want)
		}
	}
}

// lasts asserts for how long a key is there: at most so long, and at least half of it.
func (r *redissonTest) lasts(key string, want time.Duration) {
	r.Helper()
	ms, _ := r.do("PTTL", key).(int64)
	if got := time.Duration(ms) * time.Millisecond; got > want || got < want/2 {
		r.Errorf("%s lasts %v, not %v", key, got, want)
	}
}

// hears returns the messages of channels that begin with redisson_, with the channel.
func (r *redissonTest) hears() (next func(want string)) {
	r.Helper()
	messages := make(chan string, 100)
	l, err := dialResp(r, r.server.Addr).Listen(r.Context(), func(channel, message string) {
		if message == "" {
			message = "subscribed"
		}
		messages <- channel + " " + message
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(l.Close)
	next = func(want string) {
		r.Helper()
		select {
		case got := <-messages:
			if got != want {
				r.Errorf("published %q, not %q", got, want)
			}
		case <-time.After(hanging):
			r.Fatalf("not published: %q", want)
		}
	}
	for _, channel := range []string{wire.LockChannel("n"), wire.ReadWriteChannel("n"), wire.SemaphoreChannel("n")} {
		if err := l.Subscribe(r.Context(), channel); err != nil {
			r.Fatal(err)
		}
		next(channel + " subscribed")
	}
	return next
}

const (
	// ours is an owner of Holdfast, and wired what is written for it.
	ours  = "0123456789abcdef0123456789abcdef"
	wired = "01234567-89ab-cdef-0123-456789abcdef:0"
	// javas are owners of Redisson.
	java  = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1"
	java2 = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb:77"
)

func mutex(ttl time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: ours, TTL: ttl, Note: "a note"}
}

func reader(ttl time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: ours, TTL: ttl, Mode: driver.Shared, RW: true}
}

func writing(ttl time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: ours, TTL: ttl, RW: true}
}

func permits(slots, n int, ttl time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: ours, TTL: ttl, Mode: driver.Slot, Slots: slots, Permits: n}
}

// takes asserts that a request is granted, and for how long it is trusted.
func (r *redissonTest) takes(req driver.Request, valid time.Duration) driver.Grant {
	r.Helper()
	g, err := r.Try(r.Context(), req)
	if err != nil || g.Valid != valid || g.Token != 0 {
		r.Fatalf("Try: %+v, %v; it should be trusted for %v", g, err, valid)
	}
	return g
}

func (r *redissonTest) refuses(req driver.Request, want error) {
	r.Helper()
	if _, err := r.Try(r.Context(), req); !errors.Is(err, want) {
		r.Errorf("Try returned %v, not %v", err, want)
	}
}

func (r *redissonTest) renews(g driver.Grant, valid time.Duration, want error) {
	r.Helper()
	if got := r.Renew(r.Context(), []driver.Grant{g})[0]; !errors.Is(got.Err, want) || want == nil && got.Valid != valid {
		r.Errorf("Renew: %+v; right is %v, %v", got, valid, want)
	}
}

func (r *redissonTest) releases(g driver.Grant, want error) {
	r.Helper()
	if err := r.Release(r.Context(), []driver.Grant{g})[0]; !errors.Is(err, want) {
		r.Errorf("Release returned %v, not %v", err, want)
	}
}

// empty asserts that there are no keys but the store's.
func (r *redissonTest) empty() {
	r.Helper()
	r.is(map[string]any{"KEYS [^h]*": []any{}})
}

func TestRedissonMutexOnTheWire(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	g := r.takes(mutex(time.Minute), time.Minute)
	r.is(map[string]any{"HGETALL n": []any{wired, "1"}})
	r.lasts("n", time.Minute)
	r.takes(mutex(time.Minute), time.Minute) // a repeated request does not enter again
	r.is(map[string]any{"HGETALL n": []any{wired, "1"}})
	r.all("PEXPIRE n 1000")
	r.renews(g, time.Minute, nil)
	r.lasts("n", time.Minute)
	r.releases(g, nil)
	heard("redisson_lock__channel:{n} 0")
	r.empty()
	r.releases(g, driver.ErrNotHeld)
	r.renews(g, 0, driver.ErrNotHeld)
	r.empty()

	r.all("HSET n "+java+" 2", "PEXPIRE n 20000")
	_, err := r.Try(t.Context(), mutex(time.Minute))
	held := (*driver.HeldError)(nil)
	if !errors.As(err, &held) || held.ExpiresIn <= 10*time.Second || held.ExpiresIn > 20*time.Second {
		t.Errorf("beside a hold of Java Try returned %v", err)
	}
	r.renews(g, 0, driver.ErrNotHeld)
	r.releases(g, driver.ErrNotHeld)
	r.is(map[string]any{"HGETALL n": []any{java, "2"}})
}

// TestRedissonKinds: of a name that is something else nothing is taken, and nothing is changed.
func TestRedissonKinds(t *testing.T) {
	r := newRedissonTest(t)
	requests := map[string]driver.Request{
		"mutex": mutex(time.Minute), "reader": reader(time.Minute), "writer": writing(time.Minute), "semaphore": permits(3, 1, time.Minute),
	}
	for _, c := range []struct{ what, set, fits string }{
		{"a lock", "HSET n " + java + " 1", "mutex"},
		{"a read lock", "HSET n mode read " + java + " 1;PEXPIRE n 30000;SET {n}:" + java + ":rwlock_timeout:1 1 PX 30000", "writer reader"},
		{"a write lock", "HSET n mode write " + java + ":write 1", "writer reader"},
		{"a semaphore of another size", "SET n 4", ""},
		{"a text", "SET n text", ""},
		{"a long number", "SET n 123456789012345678901234", ""},
		{"a list", "RPUSH n a", ""},
		{"a set", "SADD n a", ""},
		{"a sorted set", "ZADD n 1 a", ""},
		{"a semaphore whose permits are something else", "SET {n}:timeout a", "mutex writer reader"},
	} {
		r.all("FLUSHALL")
		r.all(strings.Split(c.set, ";")...)
		before := r.do("DUMP", "n")
		for kind, req := range requests {
			g, err := r.Try(t.Context(), req)
			switch fits := strings.Contains(c.fits, kind); {
			case !fits && !errors.Is(err, driver.ErrMismatch):
				t.Errorf("%s of %s: %v, not ErrMismatch", kind, c.what, err)
			case fits && errors.Is(err, driver.ErrMismatch):
				t.Errorf("%s of %s: %v", kind, c.what, err)
			}
			g.Request, g.Handle = req, certain{}
			if err == nil {
				r.releases(g, nil)
				continue
			}
			r.renews(g, 0, driver.ErrNotHeld)
			r.releases(g, driver.ErrNotHeld)
		}
		if r.do("DUMP", "n") != before {
			t.Errorf("%s was changed", c.what)
		}
	}
}

// TestRedissonUnsupported: what the wire cannot carry is refused, and nothing is sent: neither of requests, nor in a cluster
// of names that Redisson handles wrongly there.
func TestRedissonUnsupported(t *testing.T) {
	r := newRedissonTest(t)
	others := map[RedissonKind]driver.Driver{}
	for _, kind := range []RedissonKind{RedissonFair, RedissonFenced, RedissonSpin} {
		d, err := New(t.Context(), dialResp(t, r.server.Addr), &Options{Layout: Redisson, Redisson: kind})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		others[kind] = d
	}
	sent := func() any {
		return r.do("EVAL", "return redis.call('INFO', 'commandstats'):match('cmdstat_evalsha:calls=(%d+)')", "0")
	}
	before := sent()
	all := []driver.Request{mutex(time.Minute), reader(time.Minute), writing(time.Minute), permits(2, 1, time.Minute)}
	for _, req := range all {
		req.MinHold = time.Second
		r.refuses(req, driver.ErrUnsupported)
		req.MinHold, req.LockDelay = 0, time.Second
		r.refuses(req, driver.ErrUnsupported)
		req.LockDelay = 0
		for kind, d := range others {
			if req == all[0] {
				break // a mutex they have
			}
			if _, err := d.Try(t.Context(), req); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("%v of a client whose mutexes are %s: %v", req.Mode, kind, err)
			}
		}
	}
	r.cluster = true
	for _, name := range []string{"a{}b", "a{b", "a}b{c}", "a}b"} {
		for _, req := range all {
			req.Name = name
			r.refuses(req, driver.ErrUnsupported)
			if err := r.Renew(t.Context(), []driver.Grant{{Request: req}})[0].Err; !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("Renew of %q returned %v", name, err)
			}
		}
	}
	if after := sent(); after != before {
		t.Errorf("scripts were run: %v, %v before", after, before)
	}
	r.empty()
}

// TestRedissonReenters: the hash says 1, however often a lease is entered again: the process counts.
func TestRedissonReenters(t *testing.T) {
	r := newRedissonTest(t)
	locks, err := holdfast.Open(t.Context(), "redis://"+r.server.Addr+"?hf.layout=redisson")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	once := func(when string) {
		t.Helper()
		if fields := r.do("HVALS", "n"); fmt.Sprint(fields) != "[1]" {
			t.Errorf("%s the hash has %v", when, fields)
		}
	}
	lock := locks.Mutex("n", &holdfast.Options{Reentrant: true})
	err = lock.Do(t.Context(), func(ctx context.Context, lease *holdfast.Lease) error {
		inner, err := lock.Acquire(ctx)
		again, err2 := lease.Reenter()
		once("entered three times,")
		err = errors.Join(err, err2, again.Release(), inner.Release())
		once("entered once,")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	r.empty()
}
