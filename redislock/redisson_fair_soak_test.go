//go:build soak

package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// fairTest has a driver whose mutexes are fair.
type fairTest struct {
	*redissonTest
	fair
	queue, ends string
}

func newFairTest(t *testing.T) *fairTest {
	r := newRedissonTest(t)
	return &fairTest{r, r.fairClient(), wire.FairQueue("n"), wire.FairTimeouts("n")}
}

// waits asserts that an owner has a place, with so many ahead.
func (f *fairTest) waits(owner string, ahead int) {
	f.Helper()
	var held *driver.HeldError
	if _, err := f.Enqueue(f.Context(), as(owner, mutex(time.Minute))); !errors.As(err, &held) || held.Ahead != ahead {
		f.Fatalf("%s is told %v, where %d are ahead", owner, err, ahead)
	}
}

// gets asserts that an owner gets the lock by its place.
func (f *fairTest) gets(owner string) driver.Grant {
	f.Helper()
	g, err := f.Enqueue(f.Context(), as(owner, mutex(time.Minute)))
	if err != nil {
		f.Fatalf("P8: %s does not get the lock: %v", owner, err)
	}
	return g
}

func (f *fairTest) frees(g driver.Grant) {
	f.Helper()
	if err := f.fair.Release(f.Context(), []driver.Grant{g})[0]; err != nil {
		f.Fatal(err)
	}
}

// score is when a place ends.
func (f *fairTest) score(owner string) int64 {
	f.Helper()
	ms, err := strconv.ParseInt(fmt.Sprint(f.do("ZSCORE", f.ends, wire.Owner(owner))), 10, 64)
	if err != nil {
		f.Fatalf("%s has no place: %v", owner, err)
	}
	return ms
}

// javaWaits gives a thread in Java a place, as Redisson's script does.
func (f *fairTest) javaWaits(owner string, wait time.Duration) {
	f.Helper()
	last := f.do("LINDEX", f.queue, "-1")
	base := time.Now().UnixMilli()
	if last != nil {
		ms, _ := strconv.ParseInt(fmt.Sprint(f.do("ZSCORE", f.ends, last.(string))), 10, 64)
		base = max(base, ms)
	}
	f.do("ZADD", f.ends, strconv.FormatInt(base+wait.Milliseconds(), 10), owner)
	f.do("RPUSH", f.queue, owner)
}

// javaGets lets the first of the queue, a thread in Java, have the lock, as Redisson's script does.
func (f *fairTest) javaGets(owner string, wait time.Duration) {
	f.Helper()
	f.is(map[string]any{"LPOP " + f.queue: owner})
	f.do("ZREM", f.ends, owner)
	for _, other := range f.do("ZRANGE", f.ends, "0", "-1").([]any) {
		f.do("ZINCRBY", f.ends, strconv.FormatInt(-wait.Milliseconds(), 10), other.(string))
	}
	f.all("HSET n "+owner+" 1", "PEXPIRE n 30000")
}

// TestRedissonFairBehindJava: a waiter in Go keeps its place when the one in Java before it gets the lock at the end of
// its own, and releases it before the next poll.
func TestRedissonFairBehindJava(t *testing.T) {
	f := newFairTest(t)
	for _, left := range []time.Duration{10 * time.Second, 3 * time.Second, time.Second} {
		f.all("FLUSHALL", "HSET n "+java2+" 1", "PEXPIRE n 30000")
		f.javaWaits(java, left) // of the five minutes that its client gives it
		f.waits("first", 1)
		f.waits("second", 2)
		f.all("DEL n")
		f.javaGets(java, 300*time.Second)
		for _, owner := range []string{"first", "second"} {
			if f.score(owner) <= time.Now().UnixMilli() {
				t.Errorf("P8: with %v left, the place of the waiter %s is over", left, owner)
			}
		}
		f.all("DEL n")
		f.waits("second", 1)
		f.frees(f.gets("first"))
		f.frees(f.gets("second"))
	}
}

// TestRedissonFairDeadBehindJava: one of ours dies behind a waiter in Java, so its place lasts for long. When it is the
// first, the next one waits for it as for any of ours.
func TestRedissonFairDeadBehindJava(t *testing.T) {
	f := newFairTest(t)
	f.all("HSET n "+java2+" 1", "PEXPIRE n 30000")
	f.javaWaits(java, 300*time.Second)
	f.waits("dead", 1)
	f.waits("live", 2)
	f.all("DEL n")
	f.javaGets(java, 300*time.Second)
	f.all("DEL n")
	f.waits("live", 1)
	if left := time.Until(time.UnixMilli(f.score("dead"))); left > f.fair.placeLife() {
		t.Errorf("P7: a waiter that has died keeps the others waiting for another %v", left)
	}
	if _, err := f.fair.Try(t.Context(), as("another", mutex(time.Minute))); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P8: another got the lock: %v", err)
	}
	f.gets("dead") // it lives
}

// TestRedissonFairDeadBetweenJava: several of ours die behind waiters in Java, and only Java is behind them. When the
// last one in Java before them has had the lock, nobody of ours is there to shorten their places, which last no longer
// than if nobody had been ahead.
func TestRedissonFairDeadBetweenJava(t *testing.T) {
	f := newFairTest(t)
	const wait = 300 * time.Second
	f.all("HSET n holder 1", "PEXPIRE n 30000")
	f.javaWaits(java, wait)
	f.waits("first", 1)
	f.javaWaits(java2, wait)
	for i, owner := range []string{"second", "third", "fourth"} {
		f.waits(owner, 3+i)
	}
	const java3 = "cccccccc-cccc-4ccc-8ccc-cccccccccccc:1"
	f.javaWaits(java3, wait)
	soon := func(owners ...string) {
		t.Helper()
		for _, owner := range owners {
			if left := time.Until(time.UnixMilli(f.score(owner))); left > f.fair.placeLife() {
				t.Errorf("P7: the place of %s, who has died, lasts for another %v", owner, left)
			}
		}
	}
	f.all("DEL n")
	f.javaGets(java, wait)
	soon("first")
	f.all("DEL n", "LPOP "+f.queue, "ZREM "+f.ends+" "+wire.Owner("first")) // its place has ended
	f.javaGets(java2, wait)
	soon("second", "third", "fourth")
	if left := time.Until(time.UnixMilli(f.score(java3))); left < wait/2 {
		t.Errorf("P8: a waiter in Java has %v left of its place", left)
	}
}

// TestRedissonFairBack: a waiter in Java gets the lock, and shortens the places behind it by more than it has left itself.
// Waiters in Go whose places are removed by that go back to the front, and whoever never had one to the end.
func TestRedissonFairBack(t *testing.T) {
	f := newFairTest(t)
	f.all("HSET n holder 1", "PEXPIRE n 30000")
	f.javaWaits(java, time.Minute) // of an hour
	f.waits("first", 1)
	f.waits("second", 2)
	f.all("DEL n")
	f.javaGets(java, time.Hour)
	f.waits("newcomer", 0) // it finds that the others' places have ended
	f.waits("second", 0)
	f.waits("first", 0)
	f.is(map[string]any{
		"LRANGE " + f.queue + " 0 -1": []any{wire.Owner("first"), wire.Owner("second"), wire.Owner("newcomer")}, "ZCARD " + f.ends: 3,
	})
	f.all("DEL n", "LPOP "+f.queue, "ZREM "+f.ends+" "+wire.Owner("first")) // removed again, and the lock is free
	f.gets("first")
	f.is(map[string]any{"HKEYS n": []any{wire.Owner("first")}, "LINDEX " + f.queue + " 0": wire.Owner("second"), "ZCARD " + f.ends: 2})
}

// TestRedissonFairListens: a turn that comes before the server has confirmed the channel of a waiter is not told. So the
// waiter asks when it is confirmed; and at once if the server still tells from a place that its owner had before.
func TestRedissonFairListens(t *testing.T) {
	f := newFairTest(t)
	f.all("HSET n holder 1", "PEXPIRE n 30000")
	for _, place := range []string{"first", "second"} {
		f.waits("first", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := f.Wait(ctx, as("first", mutex(time.Minute))); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P8: with its %s place the owner is not woken: %v", place, err)
		}
		cancel()
		f.forget("first") // its answer was lost
	}
}

// TestRedissonFairClash: while others wait for a fair lock, who wants another kind of lock of the name is told so, and
// is not let in before them.
func TestRedissonFairClash(t *testing.T) {
	f := newFairTest(t)
	d, err := New(t.Context(), dialResp(t, f.server.Addr), &Options{Layout: Redisson, Redisson: RedissonFenced})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	others := map[string]func() error{"fenced": func() error { _, err := d.Try(t.Context(), mutex(time.Minute)); return err }}
	for what, req := range map[string]driver.Request{
		"lock": mutex(time.Minute), "read": reader(time.Minute), "write": writing(time.Minute), "permits": permits(2, 1, time.Minute),
	} {
		others[what] = func() error { _, err := f.redissonTest.Try(t.Context(), req); return err }
	}
	for what, try := range others {
		f.all("FLUSHALL")
		f.javaWaits(java, time.Minute)
		if err := try(); !errors.Is(err, driver.ErrMismatch) {
			t.Errorf("%s: %v, not ErrMismatch", what, err)
		}
		f.is(map[string]any{"EXISTS n": 0})
		f.do("ZADD", f.ends, "1", java) // it has died long ago
		if err := try(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
