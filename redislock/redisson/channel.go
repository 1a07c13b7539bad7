package redisson

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// longestPoll is the longest pause between two questions of a waiter; each pause is jittered down to half.
const longestPoll = time.Second

// linger is for how long a channel without waiters stays subscribed: where one has waited another is likely
// to wait soon.
const linger = 5 * time.Second

// The pauses between attempts to subscribe double from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// channel is a channel that the client is, or will be, subscribed to. Its fields are guarded by Client.mu.
type channel struct {
	end       context.CancelFunc // of the subscription
	confirmed bool               // by the server
	waiters   []*waiter          // in the order in which they came
	idle      *time.Timer        // ends the subscription; nil while there are waiters
}

// waiter is one goroutine.
type waiter struct {
	permits int           // that it wants; 0 of a latch
	woken   chan struct{} // it should try now
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// await tries, whenever the channel tells that it is worth it and once in a poll, until that succeeds or
// fails, or ctx ends.
func (c *Client) await(ctx context.Context, name string, permits int, try func() (bool, error)) error {
	ch, w, err := c.join(name, permits)
	if err != nil {
		return err
	}
	defer c.leave(name, ch, w)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		timer.Reset(longestPoll/2 + rand.N(longestPoll/2))
		select {
		case <-w.woken:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.life.Done():
			return ErrClosed
		}
		if ok, err := try(); ok || err != nil {
			return err
		}
	}
}

// join makes a waiter of a channel, which it subscribes to if need be. The waiter is woken when the channel
// is confirmed, or at once if it is: suppose the last permit comes free after the waiter has tried and
// before it would be told.
func (c *Client) join(name string, permits int) (*channel, *waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{permits, make(chan struct{}, 1)}
	ch := c.channels[name]
	if ch == nil {
		ctx, end := context.WithCancel(c.life)
		ch = &channel{end: end}
		if err := c.goesLocked(func() { c.listen(ctx, name, ch) }); err != nil {
			end()
			return nil, nil, err
		}
		c.channels[name] = ch
	}
	if ch.idle != nil {
		ch.idle.Stop()
		ch.idle = nil
	}
	ch.waiters = append(ch.waiters, w)
	if ch.confirmed {
		w.wake()
	}
	return ch, w, nil
}

// leave ends a waiter. If it was woken and has not tried since, another is woken in its place.
func (c *Client) leave(name string, ch *channel, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.waiters = slices.DeleteFunc(ch.waiters, func(other *waiter) bool { return other == w })
	if len(w.woken) > 0 {
		ch.wakeLocked(w.permits)
	}
	if len(ch.waiters) == 0 {
		ch.idle = time.AfterFunc(linger, func() { c.forget(name, ch) })
	}
}

// forget ends the subscription of a channel that nobody waits for.
func (c *Client) forget(name string, ch *channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels[name] == ch && len(ch.waiters) == 0 {
		delete(c.channels, name)
		ch.end()
	}
}

// listen subscribes to a channel, and waits until that is to end.
func (c *Client) listen(ctx context.Context, name string, ch *channel) {
	subscribe := c.conn.Subscribe
	if c.publish == "SPUBLISH" {
		subscribe = c.conn.(redislock.Clustered).SubscribeShard
	}
	heard := func(message string) { c.heard(ch, message) }
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		attempt, cancel := context.WithTimeout(ctx, requestWithin)
		stop, err := subscribe(attempt, name, heard)
		cancel()
		if err == nil {
			heard("")
			<-ctx.Done()
			stop()
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// heard handles a message: the number of free permits, or one of a latch, or "" if messages may have been
// lost.
func (c *Client) heard(ch *channel, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free, err := strconv.Atoi(message)
	if err != nil {
		ch.confirmed = true
		for _, w := range ch.waiters {
			w.wake()
		}
		return
	}
	ch.wakeLocked(free)
}

// wakeLocked wakes as many waiters as so many free permits may be enough for, the first ones first. Those of
// a latch want none.
func (ch *channel) wakeLocked(free int) {
	for _, w := range ch.waiters {
		if w.permits <= free {
			free -= w.permits
			w.wake()
		}
	}
}
