package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiter is what the client keeps of an owner that may be queued. The client's mutex guards it.
type waiter struct {
	request driver.Request
	placed  bool           // the store has said that it is queued
	sent    driver.Instant // the sending of the last request that was answered so
	asking  int            // calls of Enqueue
	unknown bool           // the answer to one was lost: its request may be under way
	// woken has the grant of a hand-off, or one without token when it is worth asking again.
	woken chan driver.Grant

	waiting int       // calls of Wait for which the client polls
	deaf    bool      // the owner before it has no bell: see bells
	ahead   int       // how many are ahead in the queue
	changed time.Time // when that last changed
	polled  time.Time // the last poll, or the client's own request that has told ahead
}

// Contended implements driver.ContentionHinter: Enqueue takes a name that nobody uses as Try does.
func (c *client) Contended(string) bool { return true }

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	w := c.expect(req) // before the place is: a grant may come at once (P7)
	sent := c.clock.Now()
	g, err := c.ask(ctx, req, w, sent)
	held, queued := err.(*driver.HeldError)
	c.mu.Lock()
	w.asking--
	w.unknown = w.unknown || errors.Is(err, driver.ErrUncertain)
	if w.placed = queued; queued {
		w.sent = sent
		w.moved(held.Ahead)
	}
	over := !queued && w.answered() && c.waiters[req.Owner] == w
	if over {
		c.dropLocked(req.Owner)
	}
	c.mu.Unlock()
	if over && err != nil {
		c.bells.lower(ctx, req.Owner)
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
	if w != nil && (c.channel == "" || c.interrupted) {
		c.startPollingLocked(w)
		defer c.stopPolling(w)
	}
	c.mu.Unlock()
	if w == nil {
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells what became of it
	}
	select {
	case g := <-w.woken:
		// A hand-off whose message was under way for longer than the claim is over.
		if g.Token == 0 || c.clock.Now() >= g.Since.Add(g.Valid) {
			return driver.Grant{}, driver.ErrHeld
		}
		c.forget(req.Owner)
		return g, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-c.life.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// answered reports whether no request of the owner can be under way to the store.
func (w *waiter) answered() bool { return w.asking == 0 && !w.unknown }

// expect returns the waiter of the owner, for which Enqueue is about to send a request.
func (c *client) expect(req driver.Request) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiters[req.Owner]
	if w == nil {
		w = &waiter{request: req, woken: make(chan driver.Grant, 1)}
		c.waiters[req.Owner] = w
		c.pool.waiters.Store(req.Owner, c)
	}
	w.request = req // how many tokens it asks for may have changed
	w.asking++
	return w
}

// forget forgets the waiter of an owner. It reports whether there was one all of whose requests have been answered: none
// is on its way to the store then, and this client's own tombstone is enough (P6). Rows with many tombstones are slow.
func (c *client) forget(owner string) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiters[owner]
	c.dropLocked(owner)
	return w != nil && w.answered()
}

func (c *client) dropLocked(owner string) {
	delete(c.waiters, owner)
	c.pool.waiters.Delete(owner)
}

// deliver tells the waiters of this process, once a step is committed, what it has handed over to them.
func (c *client) deliver(a *change) {
	for _, owner := range a.winners {
		if h := a.Held(owner); h != nil {
			c.pool.wake(owner, a.Grant(h))
		}
	}
}

// wake gives a waiter of this process its grant. If that does not say what it counts from, it is the waiter's last request
// that was answered while it was queued (P1).
func (p *pool) wake(owner string, g driver.Grant) {
	of, known := p.waiters.Load(owner)
	if !known {
		return
	}
	c := of.(*client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[owner]; w != nil && (g.Since != 0 || w.placed) {
		g.Since = cmp.Or(g.Since, w.sent)
		w.wake(g)
	}
}

// messages tell other clients of a step. A hand-off goes to the winner's client, as "h TOKEN BLOCK CONTENDED CLAIM
// ASKED OWNER". A break goes to the client of the broken hold, as "b OWNER".
func (c *client) messages(a *change) (all []Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, owner := range a.winners {
		h := a.Held(owner)
		if h == nil || h.Client == "" || c.waiters[owner] != nil {
			continue
		}
		g := a.Grant(h)
		text := fmt.Sprintf("h %d %d %t %d %d %s", h.Token, g.Block, g.Contended, micros(h.Valid), h.Since, owner)
		all = append(all, c.statements.bound(notifyText, h.Client, text))
	}
	if h := a.broken; h != nil && h.Client != "" {
		all = append(all, c.statements.bound(notifyText, h.Client, "b "+h.Owner))
	}
	return all
}

// receive takes a notification of the client's channel. "" says that notifications arrive (again), and that some
// may have been lost before; "lost WHY" that they do not any more.
func (c *client) receive(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "":
		c.setInterruptedLocked(false, "")
	case "lost":
		c.setInterruptedLocked(true, rest)
	case "h":
		c.receiveHandOffLocked(rest)
	case "b":
		if c.life.Err() != nil { // and losses is closed
			return
		}
		select {
		case c.losses <- driver.Loss{Owners: []string{rest}, Err: driver.ErrBroken}:
		default: // the next renewal tells it
		}
	}
}

// setInterruptedLocked notes whether notifications arrive, and wakes all waiters: they ask, and then wait for
// notifications again, or are polled for. It logs in a goroutine, because a log handler may block.
func (c *client) setInterruptedLocked(interrupted bool, why string) {
	switch {
	case interrupted && !c.interrupted:
		go c.log.Warn("holdfast: PostgreSQL's notifications do not arrive, so waiters poll", "store", c.caps.Store, "error", why)
	case !interrupted && c.interrupted:
		go c.log.Info("holdfast: PostgreSQL's notifications arrive again", "store", c.caps.Store)
	}
	c.interrupted = interrupted
	for _, w := range c.waiters {
		w.wake(driver.Grant{})
	}
}

// receiveHandOffLocked passes a hand-off on to its waiter. Since is the sending of the owner's last request that
// the server had answered before the hand-off, never the arrival of the message (P1).
func (c *client) receiveHandOffLocked(text string) {
	const numbers = 5 // before the owner
	fields := strings.SplitN(text, " ", numbers+1)
	w := c.waiters[fields[len(fields)-1]]
	if w == nil || len(fields) <= numbers {
		return // it is another client's, over the same connection
	}
	g, claim := driver.Grant{}, int64(0)
	if n, _ := fmt.Sscan(text, &g.Token, &g.Block, &g.Contended, &claim, &g.Since); n == numbers {
		g.Valid, g.Claim = duration(claim), true
		w.wake(g)
	}
}

// wake gives a waiter its grant, or one without token, in place of one that it has not taken yet. The client's mutex
// keeps two calls apart.
func (w *waiter) wake(g driver.Grant) {
	if g.Token != 0 {
		g.Request, g.Valid, w.placed = w.request, min(g.Valid, w.request.TTL), false
	}
	select {
	case <-w.woken:
	default:
	}
	w.woken <- g
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss {
	if c.channel == "" { // waiters poll
		return nil
	}
	return c.losses
}
