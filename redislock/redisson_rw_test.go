//go:build soak

package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestRedissonReadWriteOnTheWire(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	timeout := "{n}:" + wired + ":rwlock_timeout:1"
	g := r.takes(reader(time.Minute), longestTrust)
	r.is(map[string]any{"HGET n mode": "read", "HGET n " + wired: "1", "HLEN n": 2, "GET " + timeout: "1"})
	r.lasts(timeout, time.Minute)
	r.lasts("n", time.Minute)
	r.takes(reader(time.Minute), longestTrust)
	r.is(map[string]any{"HGET n " + wired: "1", "HLEN n": 2})
	r.refuses(as("another", writing(time.Minute)), driver.ErrHeld)

	// A second reader with a shorter TTL leaves the hash its longer one, and goes.
	brief := r.takes(as("0f23456789abcdef0123456789abcdef", reader(2*time.Second)), 2*time.Second)
	r.lasts("n", time.Minute)
	r.renews(brief, 2*time.Second, nil)
	r.lasts("n", time.Minute)
	r.releases(brief, nil)
	r.lasts("n", time.Minute)
	r.is(map[string]any{"HLEN n": 2})

	// A renewal of Java has shortened the hash.
	r.all("PEXPIRE n 1000")
	r.renews(g, longestTrust, nil)
	r.lasts("n", time.Minute)
	r.lasts(timeout, time.Minute)
	r.releases(g, nil)
	heard("redisson_rwlock:{n} 0")
	r.empty()
	r.releases(g, driver.ErrNotHeld)

	// The writer.
	g = r.takes(writing(time.Minute), longestTrust)
	r.is(map[string]any{"HGET n mode": "write", "HGET n " + wired + ":write": "1", "HLEN n": 2})
	r.takes(writing(time.Minute), longestTrust)
	r.lasts("n", time.Minute) // Redisson's grows by each entry
	r.refuses(as("another", reader(time.Minute)), driver.ErrHeld)
	r.all("PEXPIRE n 1000")
	r.renews(g, longestTrust, nil)
	r.lasts("n", time.Minute)
	r.releases(g, nil)
	heard("redisson_rwlock:{n} 1")
	heard("redisson_rwlock:{n} 0")
	r.empty()

	// It becomes a reader, once.
	g = r.takes(writing(time.Minute), longestTrust)
	for range 2 {
		down, err := r.Downgrade(t.Context(), g)
		if err != nil || down.Mode != driver.Shared || down.Valid != longestTrust {
			t.Fatalf("Downgrade: %+v, %v", down, err)
		}
		r.is(map[string]any{"HGET n mode": "read", "HGET n " + wired: "1", "HLEN n": 2, "GET " + timeout: "1"})
		defer r.releases(down, driver.ErrNotHeld)
	}
	heard("redisson_rwlock:{n} 1")
	heard("redisson_rwlock:{n} 0")
	g.Mode = driver.Shared
	r.renews(g, longestTrust, nil)
	r.releases(g, nil)
	heard("redisson_rwlock:{n} 0")
	r.empty()
	if _, err := r.Downgrade(t.Context(), r.takes(mutex(time.Minute), time.Minute)); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Downgrade of a mutex returned %v", err)
	}
	r.all("DEL n")
}

// TestRedissonReadersOfJava: readers of Java, alive and dead, beside ours.
func TestRedissonReadersOfJava(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	r.all("HSET n mode read "+java+" 2 "+java2+" 1", "PEXPIRE n 30000",
		"SET {n}:"+java+":rwlock_timeout:1 1 PX 5000", "SET {n}:"+java+":rwlock_timeout:2 1 PX 20000")
	g := r.takes(reader(40*time.Second), longestTrust)
	r.lasts("n", 40*time.Second)
	r.releases(g, nil)
	r.lasts("n", 20*time.Second) // the longest hold that is left
	r.is(map[string]any{"HLEN n": 3})
	// A renewal of a third thread in Java has cut the hash short: ours leaves it what the longest hold needs.
	g = r.takes(reader(4*time.Second), 4*time.Second)
	r.all("PEXPIRE n 5000")
	r.renews(g, 4*time.Second, nil)
	if ms := r.do("PTTL", "n").(int64); ms < 10_000 {
		t.Errorf("P1: a hold lasts for up to 20 s more, and after a renewal of ours the hash lasts for %d ms", ms)
	}
	r.releases(g, nil)
	r.all("DEL {n}:" + java + ":rwlock_timeout:1 {n}:" + java + ":rwlock_timeout:2")
	g = r.takes(reader(40*time.Second), longestTrust)
	r.releases(g, nil) // the others are dead
	heard("redisson_rwlock:{n} 0")
	r.empty()

	// A number that would keep the server busy.
	r.all("HSET n mode read "+java+" 1000000000000", "PEXPIRE n 30000")
	g = r.takes(reader(40*time.Second), longestTrust)
	r.releases(g, nil)
	r.lasts("n", 40*time.Second)
	r.all("DEL n")

	// Our reader's hold is not revived when it has ended, though the hash is there.
	g = r.takes(reader(time.Millisecond), time.Millisecond)
	r.all("HSET n mode read "+java+" 1 "+wired+" 1", "PEXPIRE n 30000", "SET {n}:"+java+":rwlock_timeout:1 1 PX 30000",
		"DEL {n}:"+wired+":rwlock_timeout:1")
	r.renews(g, 0, driver.ErrNotHeld)
	// A thread of Java that has the write half, too, keeps it when ours is withdrawn.
	r.all("DEL n", "HSET n mode write "+java+":write 1 "+java+" 1", "PEXPIRE n 30000")
	r.releases(g, driver.ErrNotHeld)
	r.refuses(reader(time.Minute), driver.ErrHeld)
	r.is(map[string]any{"HLEN n": 3})
}

// TestRedissonLostDowngrade: the answer to a downgrade is lost, so package holdfast goes on with the grant of a
// writer. The hold is renewed and released whatever half it has.
func TestRedissonLostDowngrade(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	g := r.takes(writing(time.Minute), longestTrust)
	if _, err := r.Downgrade(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	heard("redisson_rwlock:{n} 1")
	heard("redisson_rwlock:{n} 0")
	r.all("PEXPIRE n 1000", "PEXPIRE {n}:"+wired+":rwlock_timeout:1 1000")
	r.renews(g, longestTrust, nil)
	r.lasts("n", time.Minute)
	r.lasts("{n}:"+wired+":rwlock_timeout:1", time.Minute)
	r.releases(g, nil)
	heard("redisson_rwlock:{n} 0")
	r.empty()

	// A withdrawal, which does not know of the grant.
	r.takes(writing(time.Minute), longestTrust)
	if _, err := r.Downgrade(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	r.releases(driver.Grant{Request: writing(time.Minute)}, nil)
	r.refuses(reader(time.Minute), driver.ErrNotHeld)
	r.is(map[string]any{"EXISTS n": 0})

	// A thread of Java that has downgraded keeps its read hold when its write hold is broken, which is gone.
	r.all("FLUSHALL", "HSET n mode write "+java+":write 1", "PEXPIRE n 30000")
	info, err := r.Inspect(t.Context(), "n")
	if err != nil || len(info.Holders) != 1 {
		t.Fatal(info, err)
	}
	r.all("HSET n mode read "+java+" 1", "HDEL n "+java+":write", "SET {n}:"+java+":rwlock_timeout:1 1 PX 30000")
	for _, err := range r.free(t.Context(), r.shared, []driver.Grant{{Request: as(java, writing(time.Minute))}}, replyBroken,
		func(*driver.Grant) time.Duration { return time.Minute }) {
		if !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("P4: breaking a write hold that is gone: %v", err)
		}
	}
	r.is(map[string]any{"HGET n " + java: "1"})
}
