//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

func TestRedissonPermitsOnTheWire(t *testing.T) {
	r := newRedissonTest(t)
	heard := r.hears()
	now := time.Now().UnixMilli()
	ends := func(id string) time.Duration {
		t.Helper()
		text, _ := r.do("ZSCORE", "{n}:timeout", id).(string)
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("the score of %x: %v", id, err)
		}
		return time.Duration(ms-now) * time.Millisecond
	}
	near := func(d, want time.Duration) bool { return d >= want && d < want+hanging }
	g := r.takes(permits(5, 3, 10*time.Minute), 10*time.Minute)
	ids := wire.PermitIDs(ours, 3)
	heard("redisson_sc:{n} 2")
	r.is(map[string]any{"GET n": "2", "ZCARD {n}:timeout": 3, "PTTL n": -1, "PTTL {n}:timeout": -1})
	for i := 0; i < 48; i += 16 {
		if d := ends(ids[i : i+16]); !near(d, 10*time.Minute) {
			t.Errorf("a permit of ten minutes ends in %v", d)
		}
	}
	r.takes(permits(5, 3, 20*time.Minute), 20*time.Minute) // repeated
	r.is(map[string]any{"GET n": "2", "ZCARD {n}:timeout": 3})
	if d := ends(ids[:16]); !near(d, 20*time.Minute) {
		t.Errorf("a permit of twenty minutes ends in %v", d)
	}
	r.renews(g, 10*time.Minute, nil)
	if d := ends(ids[32:]); !near(d, 10*time.Minute) {
		t.Errorf("a permit that was renewed for ten minutes ends in %v", d)
	}
	r.refuses(as("another", permits(5, 3, time.Minute)), driver.ErrHeld)
	r.is(map[string]any{"GET n": "2", "ZCARD {n}:timeout": 3}) // all or none
	for _, slots := range []int{4, 6} {
		r.refuses(as("another", permits(slots, 1, time.Minute)), driver.ErrMismatch)
	}

	// Java has a permit, which ends.
	r.do("ZADD", "{n}:timeout", fmt.Sprint(now-1), "javas permit....")
	r.all("DECRBY n 1")
	other := r.takes(as("another", permits(5, 2, time.Minute)), time.Minute)
	heard("redisson_sc:{n} 2")
	r.is(map[string]any{"GET n": "0", "ZCARD {n}:timeout": 5})
	_, err := r.Try(t.Context(), as("a third", permits(5, 1, time.Minute)))
	held := (*driver.HeldError)(nil)
	if !errors.As(err, &held) || held.ExpiresIn <= 0 || held.ExpiresIn > time.Minute {
		t.Errorf("beside holds of a minute Try returned %v", err)
	}
	r.releases(other, nil)
	heard("redisson_sc:{n} 2")
	r.releases(other, driver.ErrNotHeld)
	r.renews(other, 0, driver.ErrNotHeld)

	// Ours has ended, and nobody has taken it yet.
	for i := 0; i < 48; i += 16 {
		r.do("ZADD", "{n}:timeout", fmt.Sprint(now), ids[i:i+16])
	}
	r.renews(g, 0, driver.ErrNotHeld)
	r.releases(g, driver.ErrNotHeld)
	heard("redisson_sc:{n} 5")
	r.is(map[string]any{"GET n": "5", "EXISTS {n}:timeout": 0})
	r.all("PEXPIRE n 60000")
	r.refuses(permits(5, 1, time.Minute), driver.ErrMismatch) // it ends while somebody has permits
}

// TestRedissonManyPermits: a hold of more permits than Lua can pass to a command is taken, renewed and released.
func TestRedissonManyPermits(t *testing.T) {
	r := newRedissonTest(t)
	const all = 20_000
	g := r.takes(permits(all, all, time.Minute), time.Minute)
	if err := r.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Fatal(err)
	}
	r.releases(g, nil)
	r.is(map[string]any{"GET n": all, "ZCARD {n}:timeout": 0})
}

// TestRedissonPermitsForEver: a permit that Java has taken without a lease never ends.
func TestRedissonPermitsForEver(t *testing.T) {
	r := newRedissonTest(t)
	r.do("SET", "n", "0")
	r.do("ZADD", "{n}:timeout", "922337203685477", "javas permit....")
	_, err := r.Try(t.Context(), permits(1, 1, time.Minute))
	held := (*driver.HeldError)(nil)
	if !errors.As(err, &held) || held.ExpiresIn < time.Hour {
		t.Errorf("Try returned %#v", err)
	}
	info, err := r.Inspect(t.Context(), "n")
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Expires < time.Hour {
		t.Errorf("it is shown as %+v, %v", info, err)
	}
	r.do("DEL", "{n}:timeout", "n")
	r.do("HSET", "n", java, "1")
	r.do("PEXPIRE", "n", "9000000000000000")
	if _, err = r.Try(t.Context(), mutex(time.Minute)); !errors.As(err, &held) || held.ExpiresIn < time.Hour {
		t.Errorf("Try returned %#v", err)
	}
}

// TestRedissonForeignNumber: a key that another program has overwritten spoils the permits of that name, and no other of
// the batch.
func TestRedissonForeignNumber(t *testing.T) {
	r := newRedissonTest(t)
	for _, foreign := range []string{"5.5", "1e3", "0x10", "nan", "-0", "007", "9223372036854775807"} {
		r.all("FLUSHALL")
		var grants []driver.Grant
		for _, name := range []string{"a", "b"} {
			req := permits(2, 1, time.Minute)
			req.Name = name
			g, err := r.Try(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, g)
		}
		r.do("SET", "a", foreign)
		if errs := r.Release(t.Context(), grants); errs[0] == nil || errs[1] != nil {
			t.Errorf("%s: releasing returns %v", foreign, errs)
		}
		r.is(map[string]any{"GET a": foreign, "GET b": 2})
	}
}
