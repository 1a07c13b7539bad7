package redislock

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// waiter is an owner that may have a place in the queue.
type waiter struct {
	request driver.Request
	// news has the grant of a hand-over, or one without token if the waiter should ask again.
	news chan driver.Grant
}

// recall has the waiter ask again.
func (w *waiter) recall() {
	select {
	case w.news <- driver.Grant{}:
	default:
	}
}

// Enqueue implements driver.Queuer.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.forgetting.rules.Fits(&req); err != nil {
		return driver.Grant{}, err
	}
	first := c.addWaiter(req) // before the request: a grant may come at once (P7)
	g, err := c.ask(ctx, req, true, first)
	if _, queued := err.(*driver.HeldError); !queued {
		c.removeWaiter(req.Owner)
	} else {
		c.contention.note(req.Name, c.clock.Now())
	}
	return g, err
}

// contention remembers which names others have wanted lately. Two names of one place in it forget each
// other.
type contention [64]atomic.Uint64

// lately is how long a name counts as wanted.
const lately = time.Second

// nameSeed is for the places in contention.
var nameSeed = maphash.MakeSeed()

// at returns the place of a name, and what is there if the name was wanted at this moment: half of the
// name's hash, and the time in milliseconds.
func (k *contention) at(name string, now driver.Instant) (*atomic.Uint64, uint64) {
	hash := maphash.String(nameSeed, name)
	return &k[hash%uint64(len(k))], hash&^math.MaxUint32 | uint64(uint32(int64(now)/int64(time.Millisecond)))
}

func (k *contention) note(name string, now driver.Instant) {
	place, mark := k.at(name, now)
	place.Store(mark)
}

// Contended implements driver.ContentionHinter.
func (c *client) Contended(name string) bool { return c.contention.wanted(name, c.clock) }

// wanted reports whether others have wanted a name lately.
func (k *contention) wanted(name string, clock driver.Clock) bool {
	place, mark := k.at(name, 0)
	seen := place.Load()
	if seen>>32 != mark>>32 {
		return false // most often; the clock is not asked
	}
	_, mark = k.at(name, clock.Now())
	return mark-seen <= uint64(lately/time.Millisecond)
}

// Wait implements driver.Queuer.
func (c *client) Wait(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	c.mu.Lock()
	w := c.waiters[req.Owner]
	c.mu.Unlock()
	if w == nil {
		return driver.Grant{}, driver.ErrHeld // no place: Enqueue tells why
	}
	select {
	case g := <-w.news:
		// A grant that was under way for longer than its claim is worth nothing.
		now := c.clock.Now()
		if g.Token == 0 || now >= g.Since.Add(g.Valid) {
			return driver.Grant{}, driver.ErrHeld
		}
		c.contention.note(req.Name, now)
		c.removeWaiter(req.Owner)
		return g, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-c.closed:
		return driver.Grant{}, driver.ErrClosed
	}
}

// addWaiter makes the owner one to whom news is passed, and reports whether it was none.
func (c *client) addWaiter(req driver.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiters[req.Owner]; w != nil {
		w.request = req // its tokens or its note may have changed
		return false
	}
	c.waiters[req.Owner] = &waiter{request: req, news: make(chan driver.Grant, 1)}
	return true
}

func (c *client) removeWaiter(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiters, owner)
}

// receive handles a message of the client's channel: a hand-over,
// "g TOKEN CLAIM ASKED TOKENS CONTENDED OWNER", a recall, "a OWNER", or a break, "b OWNER". "" says that
// messages may have been lost.
func (c *client) receive(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "":
		for _, w := range c.waiters {
			w.recall()
		}
	case "a":
		if w := c.waiters[unescape(rest)]; w != nil {
			w.recall()
		}
	case "g":
		c.receiveGrant(rest)
	case "b":
		select {
		case c.losses <- driver.Loss{Owners: []string{unescape(rest)}, Err: driver.ErrBroken}:
		default: // the holder learns it by its next renewal
		}
	}
}

// receiveGrant passes the grant of a hand-over to its waiter. Since is the sending of the owner's last
// request that the server had answered before, never the arrival of the message (P1).
func (c *client) receiveGrant(fields string) {
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
	if c.sharedAck != nil { // the winner asks, which renews the hold, and waits for the replicas
		w.news <- driver.Grant{}
		return
	}
	w.news <- driver.Grant{
		Request: w.request, Token: driver.Token(token), Block: block, Contended: f[4] == "1",
		Since: driver.Instant(asked), Valid: min(duration(claim), w.request.TTL), Claim: true,
	}
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }
