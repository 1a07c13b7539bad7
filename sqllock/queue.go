package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiter is what the client keeps of an owner that may be queued.
type waiter struct {
	request driver.Request
	placed  bool // the store has said that it is queued
	// news has the grant of a hand-off, or one without token when it is worth
	// asking again.
	news chan driver.Grant
	sight
}

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	w, placed, err := c.expect(req) // before the place is: a grant may come at once (P7)
	if err != nil {
		return driver.Grant{Request: req}, err
	}
	g, err := c.ask(ctx, req, true, !placed)
	_, queued := err.(*driver.HeldError)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests.end(req.Owner, errors.Is(err, driver.ErrUncertain))
	w.placed = queued
	if !queued && c.requests.all(req.Owner) && c.waiters[req.Owner] == w {
		delete(c.waiters, req.Owner)
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
	if w != nil && (c.channel == "" || c.deaf) {
		c.lookFor(&w.sight)
		defer c.lookAway(w)
	}
	c.mu.Unlock()
	if w == nil {
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	select {
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

// expect returns the owner's waiter, of which one more request is under way, and
// whether it is placed; or an error if the owner has been withdrawn.
func (c *client) expect(req driver.Request) (w *waiter, placed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.gone.To(req.Owner, c.clock.Now()); err != nil {
		return nil, false, err
	}
	w = c.waiters[req.Owner]
	if w == nil {
		w = &waiter{request: req, news: make(chan driver.Grant, 1)}
		c.waiters[req.Owner] = w
	}
	c.requests.begin(req.Owner)
	return w, w.placed, nil
}

func (c *client) forget(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, owner)
}

// withdraw forgets an owner whose request is withdrawn, and reports whether all its
// requests are answered, as far as this client has sent them: as a rule it has sent
// all. Then none can be under way to the store, and what comes to this client later is
// refused here (P6). Otherwise the store has to remember the owner.
func (c *client) withdraw(g *driver.Grant) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, g.Owner)
	if !c.requests.all(g.Owner) || g.Stray {
		return false
	}
	now := c.clock.Now()
	c.gone.Say(g.Owner, driver.ErrNotHeld, now, now.Add(max(g.TTL, withdrawnFor)))
	return true
}

// tellOwn tells this client's own waiters what a turn has handed over to them, once
// it is written, and spares its looker what its waiters have written themselves: each
// confirms its place again and again.
func (c *client) tellOwn(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, owner := range t.winners {
		if w, h := c.waiters[owner], t.Held(owner); w != nil && h != nil {
			w.handOver(t.Grant(h))
		}
	}
	if c.channel != "" {
		return
	}
	for i := range t.Queue {
		// Versions grow, and the one that was written is this one or, where the
		// server's clock was set back, a greater one, which will be looked at.
		if w := c.waiters[t.Queue[i].Owner]; w != nil && w.version != unseen {
			w.version, w.looked = serverTime(t.now), time.Now()
			w.show(t.state)
		}
	}
}

// news are the messages to other clients about what a turn did. A hand-off goes to the
// client of the winner, as "h TOKEN BLOCK CONTENDED CLAIM ASKED OWNER", or as "g TOKEN
// CLAIM ASKED OWNER" if that is of a version that knows of no blocks; a break goes to that
// of the broken hold, as "b OWNER".
func (c *client) news(t *turn) (news []message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, owner := range t.winners {
		h := t.Held(owner)
		if h == nil || h.Client == "" || c.waiters[owner] != nil {
			continue
		}
		text := fmt.Sprintf("g %d %d %d %s", h.Token, micros(h.Valid), h.Since, owner)
		if h.Tokens > 0 {
			g := t.Grant(h)
			text = fmt.Sprintf("h %d %d %t %d %d %s", h.Token, g.Block, g.Contended, micros(h.Valid), h.Since, owner)
		}
		news = append(news, message{h.Client, text})
	}
	if h := t.broken; h != nil && h.Client != "" {
		news = append(news, message{h.Client, "b " + h.Owner})
	}
	return news
}

// hear takes what is published on the client's channel. "" says that messages may
// have been lost.
func (c *client) hear(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "":
		c.hears(true, "")
	case "lost":
		c.hears(false, rest)
	case "g", "h":
		c.handedOver(kind, rest)
	case "b":
		select {
		case <-c.closed: // and losses too
			return
		default:
		}
		select {
		case c.losses <- driver.Loss{Owners: []string{rest}, Err: driver.ErrBroken}:
		default: // the next renewal tells it
		}
	}
}

// hears notes whether notifications are heard again, or why not any more, and lets all
// waiters ask: then they wait for notifications again, or look. The client's mutex is held.
func (c *client) hears(again bool, why string) {
	if again == c.deaf {
		// In a goroutine, because a handler may block.
		if c.deaf = !again; c.deaf {
			go c.log.Warn("holdfast: PostgreSQL's notifications are not heard any more, so waiters poll", "store", c.caps.Store, "error", why)
		} else {
			go c.log.Info("holdfast: PostgreSQL's notifications are heard again", "store", c.caps.Store)
		}
	}
	for _, w := range c.waiters {
		w.tell(driver.Grant{})
	}
}

// handedOver passes a hand-off on to its waiter. Since is the sending of the
// owner's last request that the server had answered before, never the arrival
// of the news (P1).
func (c *client) handedOver(kind, text string) {
	g, claim := driver.Grant{Block: 1}, int64(0)
	into := []any{&g.Token, &claim, &g.Since}
	if kind == "h" {
		into = []any{&g.Token, &g.Block, &g.Contended, &claim, &g.Since}
	}
	if n, _ := fmt.Sscan(text, into...); n < len(into) {
		return
	}
	owner := strings.SplitN(text, " ", len(into)+1)[len(into):]
	if w := c.waiters[strings.Join(owner, "")]; w != nil {
		g.Valid = duration(claim)
		w.handOver(g)
	}
}

// handOver tells a waiter of a hand-off.
func (w *waiter) handOver(g driver.Grant) {
	g.Request, g.Valid = w.request, min(g.Valid, w.request.TTL)
	w.tell(g)
}

// tell gives a waiter news, instead of what it has not taken yet. Of several at a
// time the client's mutex is held.
func (w *waiter) tell(g driver.Grant) {
	select {
	case <-w.news:
	default:
	}
	w.news <- g
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }
