package redislock

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiter is what the client keeps of an owner that may be queued.
type waiter struct {
	request driver.Request
	// news has the grant of a hand-off, or one without token when it is worth
	// asking again.
	news chan driver.Grant
	// pause is the length of its next spin.
	pause time.Duration
}

// The pauses of a waiter that spins double from the first to the longest. That is
// far below two polls, so that it keeps its place and collects a claim in time.
const (
	firstSpin   = 2 * time.Millisecond
	longestSpin = 128 * time.Millisecond
)

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	first := c.expect(req) // before the place is: a grant may come at once (P7)
	g, err := c.ask(ctx, req, true, first)
	if _, queued := err.(*driver.HeldError); !queued {
		c.forget(req.Owner)
	}
	return g, err
}

// Wait implements driver.Queuer.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	c.mu.Lock()
	w := c.waiters[req.Owner]
	pause := time.Duration(0)
	if w != nil {
		pause = w.pause
		w.pause = min(2*pause, longestSpin, c.caps.PollInterval())
	}
	c.mu.Unlock()
	if w == nil {
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	var spun <-chan time.Time
	if c.id == "" {
		timer := time.NewTimer(pause/2 + mathrand.N(pause/2+1))
		defer timer.Stop()
		spun = timer.C
	}
	select {
	case <-spun:
		return driver.Grant{}, driver.ErrHeld
	case g := <-w.news:
		// News that was under way for longer than the claim is none.
		if g.Token == 0 || c.clock.Now() >= g.Since.Add(g.Valid) {
			return driver.Grant{}, driver.ErrHeld
		}
		c.forget(req.Owner)
		return g, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-c.closed:
		return driver.Grant{}, driver.ErrClosed
	}
}

// expect gets ready for news, and reports whether that is new.
func (c *client) expect(req driver.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters[req.Owner] != nil {
		return false
	}
	c.waiters[req.Owner] = &waiter{request: req, news: make(chan driver.Grant, 1), pause: firstSpin}
	return true
}

func (c *client) forget(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, owner)
}

// hear takes what the scripts publish on the client's channel: a hand-off,
// "g TOKEN CLAIM ASKED TOKENS CONTENDED OWNER", or a break, "b OWNER". "" says that messages may
// have been lost.
func (c *client) hear(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "":
		for _, w := range c.waiters {
			select {
			case w.news <- driver.Grant{}:
			default:
			}
		}
	case "g":
		c.handedOver(rest)
	case "b":
		select {
		case <-c.closed: // and losses too
			return
		default:
		}
		select {
		case c.losses <- driver.Loss{Owners: []string{unescape(rest)}, Err: driver.ErrBroken}:
		default: // the next renewal tells it
		}
	}
}

// handedOver passes a hand-off on to its waiter. Since is the sending of the
// owner's last request that the server had answered before, never the arrival
// of the news (P1).
func (c *client) handedOver(fields string) {
	f := strings.Split(fields, " ")
	if len(f) != 6 {
		return
	}
	token, err1 := strconv.ParseInt(f[0], 10, 64)
	claim, err2 := strconv.ParseInt(f[1], 10, 64)
	asked, err3 := strconv.ParseInt(f[2], 10, 64)
	block, err4 := strconv.Atoi(f[3])
	w := c.waiters[unescape(f[5])]
	if errors.Join(err1, err2, err3, err4) != nil || w == nil {
		return
	}
	select {
	case <-w.news: // older
	default:
	}
	w.news <- driver.Grant{
		Request: w.request, Token: driver.Token(token), Block: block, Contended: f[4] == "1",
		Since: driver.Instant(asked), Valid: min(duration(claim), w.request.TTL),
	}
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }
