package zk

import (
	"context"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// Calls are operations under way.
type Calls struct {
	s    *Session
	ops  []Op
	done chan struct{} // closed when all is known

	// Guarded by the session's mutex until done is closed.
	frames      []byte // the requests; nil once written
	replies     []Reply
	answered    int
	err         error
	sent        driver.Instant
	generations []int // of the watches of ops, if there are any
}

// newCalls encodes the operations.
func newCalls(s *Session, ops []Op) (*Calls, error) {
	c := &Calls{s: s, ops: ops, done: make(chan struct{}), replies: make([]Reply, len(ops))}
	size := 0
	for i := range ops {
		size += 96 + len(ops[i].path) + len(ops[i].data)
	}
	e := encoder{make([]byte, 0, size)}
	for i := range ops {
		if err := ops[i].frame(&e); err != nil {
			return c, err
		}
	}
	c.frames = e.b
	return c, nil
}

// Wait waits for all answers, and returns what Do returns. If ctx ends first it returns ctx's error,
// and the operations stay under way.
func (c *Calls) Wait(ctx context.Context) ([]Reply, error) {
	select {
	case <-c.done:
		return c.replies, c.err
	default:
	}
	select {
	case <-c.done:
		return c.replies, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cancel withdraws the operations if they are not written yet, and reports whether it did. They then fail
// with err.
func (c *Calls) cancel(err error) bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, queued := range s.queue {
		if queued == c {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			c.failLocked(err)
			return true
		}
	}
	return false
}

// do waits like Do.
func (c *Calls) do(ctx context.Context) ([]Reply, error) {
	replies, err := c.Wait(ctx)
	if replies != nil {
		return replies, err
	}
	if c.cancel(c.s.notSent(err)) {
		return c.replies, c.err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	select {
	case <-c.done: // just now
		return c.replies, c.err
	default:
	}
	err = &driver.UnansweredError{Ended: err, Why: c.s.silentLocked()}
	// What is answered later must not be written into what the caller has.
	replies = append([]Reply(nil), c.replies...)
	for i := c.answered; i < len(replies); i++ {
		replies[i].Err = err
		replies[i].Sent = c.sent
	}
	return replies, err
}

// notSent says that nothing was sent before ctx ended, and what was in the way.
func (s *Session) notSent(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: %w", ErrNotSent, &driver.UnansweredError{Ended: err, Why: s.silentLocked()})
}

// silentLocked returns why there is no answer.
func (s *Session) silentLocked() error {
	if s.conn != nil {
		return fmt.Errorf("zk: %s has not answered", s.conn.at.dial)
	}
	return s.failed
}

// failLocked ends the operations without the answers that are missing.
func (c *Calls) failLocked(err error) {
	for i := c.answered; i < len(c.ops); i++ {
		c.replies[i] = Reply{Err: err, Sent: c.sent}
		if w := c.ops[i].watch; w != nil {
			c.s.watches.end(keyOf(&c.ops[i]), w, c.generations[i], false, false)
		}
	}
	c.answered, c.frames, c.err = len(c.ops), nil, err
	close(c.done)
}
