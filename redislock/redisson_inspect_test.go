//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestRedissonInspects shows holds, Java's too, and breaks them by their numbers.
func TestRedissonInspects(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	inspect := func(want ...string) driver.Info {
		t.Helper()
		info, err := r.Inspect(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range info.Holders {
			if h.Token <= 0 || h.Expires <= 0 || h.Expires > time.Minute {
				t.Errorf("a holder is shown as %+v", h)
			}
			got = append(got, fmt.Sprintf("%s %s %d of %d", h.Owner, h.Mode, h.Permits, info.Slots))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("holders are %q, not %q", got, want)
		}
		return info
	}
	notes := func(want ...string) {
		t.Helper()
		info, err := r.Inspect(t.Context(), "n")
		var got []string
		for _, h := range info.Holders {
			got = append(got, h.Note)
		}
		for _, w := range info.Waiters {
			got = append(got, w.Note)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("notes are %q, %v, not %q", got, err, want)
		}
	}
	breaks := func(owner string) {
		t.Helper()
		info, err := r.Inspect(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(info.Holders, func(h driver.Holder) bool { return h.Owner == owner })
		if i < 0 {
			t.Fatalf("%s has no hold", owner)
		}
		if err := r.Break(t.Context(), "n", info.Holders[i].Token); err != nil {
			t.Errorf("Break of the hold of %s: %v", owner, err)
		}
		if err := r.Break(t.Context(), "n", info.Holders[i].Token); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Break of a broken hold returned %v", err)
		}
	}
	inspect()
	g := r.takes(mutex(time.Minute), time.Minute)
	inspect(ours + " exclusive 0 of 0")
	notes("Holdfast")
	breaks(ours)
	heard("redisson_lock__channel:{n} 0")
	inspect()
	r.renews(g, 0, driver.ErrBroken)
	r.releases(g, driver.ErrBroken)
	r.all("HSET n "+java+" 3", "PEXPIRE n 30000")
	inspect(java + " exclusive 0 of 0")
	until := fmt.Sprint(time.Now().UnixMilli() + 60000)
	r.all("RPUSH redisson_lock_queue:{n} "+java2+" "+wired, "ZADD redisson_lock_timeout:{n} "+until+" "+java2+" "+until+" "+wired)
	notes("Holdfast", "Redisson aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa, thread 1, 3 times", "Redisson bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb, thread 77")
	r.all("DEL redisson_lock_queue:{n} redisson_lock_timeout:{n}")
	breaks(java)
	heard("redisson_lock__channel:{n} 0")

	r.all("HSET n mode read "+java+" 2 "+java2+" 1", "PEXPIRE n 30000", "SET {n}:"+java+":rwlock_timeout:2 1 PX 20000")
	second := "1123456789abcdef0123456789abcdef" // the first one's requests are refused for a while
	g = r.takes(as(second, reader(time.Minute)), longestTrust)
	inspect(second+" shared 0 of 0", java+" shared 0 of 0") // the other one is dead
	breaks(java)
	inspect(second + " shared 0 of 0")
	r.renews(g, longestTrust, nil)
	breaks(second)
	heard("redisson_rwlock:{n} 0")
	r.renews(g, 0, driver.ErrBroken)
	inspect()
	r.all("HSET n mode write "+java+":write 2", "PEXPIRE n 30000")
	inspect(java + " exclusive 0 of 0")
	breaks(java)
	heard("redisson_rwlock:{n} 1")
	heard("redisson_rwlock:{n} 0")
	r.all("HSET n mode write "+java+":write 1 "+java+" 1", "PEXPIRE n 30000", "SET {n}:"+java+":rwlock_timeout:1 1 PX 20000")
	both := inspect(java+" exclusive 0 of 0", java+" shared 0 of 0")
	for _, h := range both.Holders {
		if h.Mode == driver.Shared {
			if err := r.Break(t.Context(), "n", h.Token); err != nil {
				t.Error(err)
			}
		}
	}
	inspect(java + " exclusive 0 of 0")
	breaks(java)
	heard("redisson_rwlock:{n} 1")
	heard("redisson_rwlock:{n} 0")

	third := "2123456789abcdef0123456789abcdef"
	g = r.takes(as(third, permits(9, 3, time.Minute)), time.Minute)
	heard("redisson_sc:{n} 6")
	r.do("ZADD", "{n}:timeout", fmt.Sprint(time.Now().UnixMilli()+20000), "javas permit....", fmt.Sprint(time.Now().UnixMilli()-1), "an ended permit.")
	r.all("DECRBY n 2")
	inspect(third+" slot 3 of 9", fmt.Sprintf("%x slot 1 of 9", "javas permit...."))
	notes("permit "+third, "permit 6a61766173207065726d69742e2e2e2e")
	breaks(fmt.Sprintf("%x", "javas permit...."))
	heard("redisson_sc:{n} 5")
	r.renews(g, time.Minute, nil)
	breaks(third)
	heard("redisson_sc:{n} 8")
	inspect()
	r.renews(g, 0, driver.ErrBroken)
}

// TestRedissonBreakGoesByTheToken: of an RFencedLock the hold that the operator saw is broken, and no later one of the
// same thread in Java. A token that is none is not shown.
func TestRedissonBreakGoesByTheToken(t *testing.T) {
	r := newRedissonTest(t)
	d, err := New(t.Context(), dialResp(t, r.server.Addr), &Options{Layout: Redisson, Redisson: RedissonFenced})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f := d.(redisson)
	r.all("HSET n "+java+" 1", "PEXPIRE n 30000", "SET redisson_lock_token:{n} 7")
	seen, err := f.Inspect(t.Context(), "n")
	if err != nil || len(seen.Holders) != 1 || seen.Holders[0].Token != 7 {
		t.Fatalf("%+v, %v", seen, err)
	}
	// Between the look and the break the thread releases, and takes the lock again.
	r.do("INCR", "redisson_lock_token:{n}")
	g := driver.Grant{Request: driver.Request{Name: "n", Owner: seen.Holders[0].Owner}}
	if err := f.breakFenced(t.Context(), g, 7, time.Minute); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("P4: %v", err)
	}
	r.is(map[string]any{"HGETALL n": []any{java, "1"}})
	heard := r.hears()
	if err := f.Break(t.Context(), "n", 8); err != nil {
		t.Error(err)
	}
	heard("redisson_lock__channel:{n} 0")
	for _, counter := range []string{"0", "-3", "9007199254740993", "99999999999999999999", "text", ""} {
		r.all("HSET n "+java+" 1", "PEXPIRE n 30000", "DEL redisson_lock_token:{n}")
		if counter != "" {
			r.do("SET", "redisson_lock_token:{n}", counter)
		}
		seen, err := f.Inspect(t.Context(), "n")
		if err != nil || len(seen.Holders) != 1 || seen.Holders[0].Token != numberOf(&seen.Holders[0]) {
			t.Fatalf("with the counter at %q: %+v, %v", counter, seen, err)
		}
		if err := f.Break(t.Context(), "n", seen.Holders[0].Token); err != nil {
			t.Errorf("with the counter at %q: %v", counter, err)
		}
	}
}
