package sqltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Blocks checks the tokens that follow holds with a block of them (P3): they are above the
// last one that was used, or that may have been used, and no further ahead of the server's
// clock, which is this host's. Both drivers are over one store, so that a waiter of one can
// be granted the name by the other.
func Blocks(t *testing.T, d, other driver.Driver) {
	t.Helper()
	defer d.Close()
	defer other.Close()
	b := &blocks{T: t, size: d.Caps().TokenBlock, name: fmt.Sprintf("blocks/%x", rand.Uint64())}
	g := b.take(d, b.request(b.size, time.Minute))
	for range 50 {
		used := g
		used.Token, used.HandedOver = g.Token+driver.Token(rand.IntN(g.Block)), true
		if rand.IntN(3) == 0 {
			if err := d.Renew(t.Context(), []driver.Grant{used})[0].Err; err != nil {
				t.Fatalf("P3: Renew of a hold that was handed on: %v", err)
			}
		}
		b.release(d, used)
		g = b.take(d, b.request(b.size, time.Minute))
		b.follows(g, used.Token, used.Token, "a release told the last one used")
	}
	b.release(d, g)
	b.crashes(d)
	for _, from := range []driver.Driver{d, other} {
		b.handsOver(from, d)
		b.handsOver(from, other)
	}
}

type blocks struct {
	*testing.T
	size int
	name string
}

func (b *blocks) request(tokens int, ttl time.Duration) driver.Request {
	return driver.Request{Name: b.name, Owner: fmt.Sprintf("owner %x", rand.Uint64()), TTL: ttl, Tokens: tokens}
}

// take asks again until the name is free.
func (b *blocks) take(d driver.Driver, r driver.Request) driver.Grant {
	b.Helper()
	for {
		g, err := d.Try(b.Context(), r)
		if err == nil {
			if g.Block != r.Tokens || g.Contended {
				b.Errorf("of %d tokens the grant has %d; contended: %t", r.Tokens, g.Block, g.Contended)
			}
			return g
		}
		if !errors.Is(err, driver.ErrHeld) {
			b.Fatal(err)
		}
	}
}

func (b *blocks) release(d driver.Driver, g driver.Grant) {
	b.Helper()
	if err := d.Release(b.Context(), []driver.Grant{g})[0]; err != nil {
		b.Fatalf("P4: Release: %v", err)
	}
}

// follows asserts that a token is above the highest that was used, and no further ahead
// of the time than whatever is left of the blocks before.
func (b *blocks) follows(g driver.Grant, used, reserved driver.Token, why string) {
	b.Helper()
	switch now := driver.Token(time.Now().UnixMicro()); {
	case g.Token <= used:
		b.Errorf("P3: %s: token %d after %d", why, g.Token, used)
	case g.Token > max(reserved+1, now):
		b.Errorf("%s: token %d after %d drives the clock ahead of %d", why, g.Token, reserved, now)
	}
}

// crashes takes holds that vanish at once: nobody knows how many of their tokens were used.
func (b *blocks) crashes(d driver.Driver) {
	for range 10 {
		g := b.take(d, b.request(b.size, time.Millisecond))
		last := g.Token + driver.Token(b.size) - 1
		g = b.take(d, b.request(1, time.Minute))
		b.follows(g, last, last, "the holder of a block crashed")
		b.release(d, g)
	}
}

// handsOver releases a block while two wait: the first gets one too, and knows that
// another waits.
func (b *blocks) handsOver(from, to driver.Driver) {
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	g := b.take(from, b.request(b.size, time.Minute))
	waits := func(d driver.Driver, tokens int) driver.Request {
		r := b.request(tokens, time.Minute)
		if _, err := d.(driver.Queuer).Enqueue(ctx, r); !errors.Is(err, driver.ErrHeld) {
			b.Fatalf("Enqueue behind a hold: %v", err)
		}
		return r
	}
	first, second := waits(to, b.size), waits(from, 1)
	for _, c := range []struct {
		from, to driver.Driver
		r        driver.Request
		more     bool
	}{{from, to, first, true}, {to, from, second, false}} {
		g.Token += 3
		b.release(c.from, g)
		next, err := c.to.(driver.Queuer).Wait(ctx, c.r)
		for errors.Is(err, driver.ErrHeld) {
			next, err = c.to.(driver.Queuer).Enqueue(ctx, c.r)
		}
		if err != nil {
			b.Fatalf("P7: a waiter: %v", err)
		}
		if next.Block != c.r.Tokens || next.Contended != c.more {
			b.Errorf("a hold was handed over with %d of %d tokens; contended: %t, want %t", next.Block, c.r.Tokens, next.Contended, c.more)
		}
		b.follows(next, g.Token, g.Token, "a hold was handed over")
		g = next
	}
	g.Block = 1
	b.release(from, g)
}
