//go:build soak

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// redissonKinds are the kinds of mutexes, and no other.
var redissonKinds = []redislock.RedissonKind{
	redislock.RedissonLock, redislock.RedissonFair, redislock.RedissonFenced, redislock.RedissonSpin,
}

// useRedisson does all that locks of a kind can do, while others wait.
func useRedisson(ctx context.Context, url string, all bool) error {
	a, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := holdfast.Open(ctx, url)
	if err != nil {
		return err
	}
	defer b.Close()
	kinds := []func(*holdfast.Client) *holdfast.Lock{func(c *holdfast.Client) *holdfast.Lock { return c.Mutex("m", nil) }}
	if all {
		kinds = append(kinds, func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("rw", nil).Write },
			func(c *holdfast.Client) *holdfast.Lock { return c.RWMutex("r", nil).Read },
			func(c *holdfast.Client) *holdfast.Lock { return c.Semaphore("s", 1, nil) })
	}
	for _, lock := range kinds {
		held, err := lock(a).Acquire(ctx)
		if err != nil {
			return err
		}
		if err := held.Renew(ctx); err != nil {
			return err
		}
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if lease, err := lock(b).Acquire(brief); err == nil { // a reader shares
			err = lease.Release()
			cancel()
			if err != nil {
				return err
			}
		} else if cancel(); !errors.Is(err, holdfast.ErrHeld) {
			return err
		}
		next := make(chan error, 1)
		go func() {
			lease, err := lock(b).Acquire(ctx)
			if err == nil {
				err = lease.Release()
			}
			next <- err
		}()
		if err := held.Downgrade(ctx); err != nil && !errors.Is(err, holdfast.ErrUnsupported) && !strings.Contains(err.Error(), "slot") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		if err := errors.Join(held.Release(), <-next); err != nil {
			return err
		}
		if held, err = lock(a).Acquire(ctx); err != nil {
			return err
		}
		info, err := b.Inspect(ctx, held.Name())
		if err != nil || len(info.Holders) != 1 {
			return fmt.Errorf("%+v, %w", info, err)
		}
		if err := b.Break(ctx, held.Name(), info.Holders[0].Token); err != nil {
			return err
		}
		if err := held.Renew(ctx); !errors.Is(err, holdfast.ErrBroken) {
			return fmt.Errorf("renewing what was broken: %w", err)
		}
	}
	for _, err := range a.List(ctx, "") {
		if err != nil {
			return err
		}
	}
	return nil
}

// standInLine has two clients wait for a fair lock until one has confirmed its place behind the other, or does not.
func standInLine(t *testing.T, url string, confirmed func() bool) {
	t.Helper()
	lock := func() *holdfast.Lock {
		c, err := holdfast.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.Mutex("line", nil)
	}
	held, err := lock().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 2 {
		waits := lock()
		waiting.Go(func() {
			if err := waits.Do(t.Context(), func(context.Context, *holdfast.Lease) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	for end := time.Now().Add(20 * time.Second); !confirmed() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
	waiting.Wait()
}

// TestNeededByRedisson compares the lists of commands with what the server has seen of the driver.
func TestNeededByRedisson(t *testing.T) {
	t.Parallel()
	for _, kind := range redissonKinds {
		server := redisOf(t, testserver.RedisOptions{})
		url := redisURL(server.Addr, "") + "?hf.layout=redisson&hf.redisson=" + string(kind)
		ask := admin(t, redisURL(server.Addr, ""))
		// What has ended, so that it is removed.
		ask("RPUSH", "redisson_lock_queue:{m}", "dead")
		ask("ZADD", "redisson_lock_timeout:{m}", "1", "dead")
		ask("SET", "s", "0")
		ask("ZADD", "{s}:timeout", "1", "sixteen bytes...")
		ask("CONFIG", "RESETSTAT")
		if err := useRedisson(t.Context(), url, kind == redislock.RedissonLock); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if kind == redislock.RedissonFair {
			standInLine(t, url, func() bool {
				seen := commandsSeen(ask)
				if seen["lpos"] && !seen["lpush"] { // their places are lost, and they come back
					ask("DEL", "redisson_lock_queue:{line}", "redisson_lock_timeout:{line}")
				}
				return seen["lpush"]
			})
		}
		seen := commandsSeen(ask)
		n := (&redisServer{layout: redislock.Redisson, redisson: kind}).needs(t.Context())
		allowed := map[string]bool{}
		for _, rule := range strings.Fields(n.rules()) {
			allowed[rule[1:]] = true
		}
		for name := range seen {
			if !allowed[name] {
				t.Errorf("%s: the driver runs %s, which the doctor does not try", kind, name)
			}
		}
		for name := range allowed {
			if !seen[name] && kind == redislock.RedissonLock && name != "unsubscribe" {
				t.Errorf("the doctor tries %s, which the driver does not run", name)
			}
		}
		for _, a := range map[redislock.RedissonKind][]attempt{redislock.RedissonFair: neededByFair, redislock.RedissonFenced: neededByFenced}[kind] {
			if !seen[a.command] {
				t.Errorf("%s: the doctor tries %s, which the driver does not run", kind, a.command)
			}
		}
	}
}

// TestRedissonAccess: the rules that the doctor names are enough, each is needed, and what is missing is named.
func TestRedissonAccess(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, redisURL(server.Addr, ""))
	for _, kind := range redissonKinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			mayUse(t, kind)
		})
	}
	ask("ACL", "SETUSER", "narrow", "on", ">"+password, "~holdfast:*", "&holdfast:*", "+@all")
	found := examine(t, redisURL(server.Addr, "narrow")+"?hf.layout=redisson")
	expect(t, found, want{"access", Error, "NOPERM"})
	if !strings.Contains(found["access"].Remedy, "~* &redisson_*") {
		t.Errorf("the remedy is %q", found["access"].Remedy)
	}
}

// mayUse checks the rules for a kind of mutexes.
func mayUse(t *testing.T, kind redislock.RedissonKind) {
	addr := redisOf(t, testserver.RedisOptions{}).Addr
	ask := admin(t, redisURL(addr, ""))
	user := string(kind)
	n := (&redisServer{layout: redislock.Redisson, redisson: kind}).needs(t.Context())
	grant := func(user, less string) string {
		ask(append(append([]string{"ACL", "SETUSER", user, "on", ">" + password}, strings.Fields(n.patterns)...), strings.Fields(n.rules()+less)...)...)
		return redisURL(addr, user) + "?hf.layout=redisson&hf.redisson=" + string(kind)
	}
	url := grant(user, "")
	if err := useRedisson(t.Context(), url, kind == redislock.RedissonLock); err != nil {
		t.Error(err)
	}
	expect(t, examine(t, url), want{"access", OK, "may do all"}, want{"lock", OK, ""}, want{"server clock", OK, ""}, want{"data of Redisson", OK, "all locks end"})
	for _, missing := range []string{"hexists", "publish", "subscribe"} {
		expect(t, examine(t, grant(user+"-"+missing, " -"+missing)), want{"access", Error, strings.ToUpper(missing)})
	}
}

// TestRedissonData: locks without an end are named, and other data are not.
func TestRedissonData(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	ask := admin(t, redisURL(server.Addr, ""))
	url := redisURL(server.Addr, "") + "?hf.layout=redisson"
	const java = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:1"
	ask("HSET", "ends", java, "1")
	ask("PEXPIRE", "ends", "600000")
	ask("HSET", "user:1", "name", "x", "age", "7")
	ask("SET", "redisson_lock_token:{a}", "5")
	expect(t, examine(t, url), want{"data of Redisson", OK, "all locks end; 1 names"})
	for i := range 7 {
		ask("HSET", fmt.Sprint("endless ", i), "mode", "read", java, "1")
	}
	found := examine(t, url)
	expect(t, found, want{"data of Redisson", Warning, `"endless `}, want{"data of Redisson", Warning, "and 2 more"})
	if text := found["data of Redisson"].Found; strings.Contains(text, "user") || strings.Contains(text, `"ends"`) {
		t.Errorf("other data are named: %s", text)
	}
	if _, other := examine(t, redisURL(server.Addr, ""))["data of Redisson"]; other {
		t.Error("it matters without the layout")
	}
	if f := judgeCounters(manyCounters + 1); f.Severity != Note {
		t.Errorf("%+v", f)
	}
}
