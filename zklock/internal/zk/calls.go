package zk

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// calls are operations that were given to a session together.
type calls struct {
	s    *Session
	ops  []Op
	done chan struct{} // closed when all is known

	// Guarded by the session's mutex until done is closed.
	frames   []byte // the requests; nil once written
	replies  []Reply
	answered int
	err      error
	sent     driver.Instant
}

// Do sends the operations in one write and waits for all answers. The server does them in their
// order, after what was sent before. While there is no connection it waits for one.
//
// There is always one Reply for each Op. An operation that the server refused has its Code in
// Reply.Err and is no error of Do. Errors: [ErrNotSent] (with ctx's, if it ended first, or with why
// the session is over), [ErrConnectionLoss], [ErrExpired], [ErrClosed], [ErrTooLarge]; or ctx's alone, which means
// that the operations were sent and their outcome is unknown. A [ctxerr.Unanswered] says what was in the way
// until ctx ended. After an error, Reply.Err of the operations without an answer is that error.
func (s *Session) Do(ctx context.Context, ops ...Op) ([]Reply, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	c := s.send(ops...)
	select {
	case <-c.done:
		return c.replies, c.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.done: // just now
		return c.replies, c.err
	default:
	}
	why := s.failed
	if s.conn != nil {
		why = fmt.Errorf("zk: %s has not answered", s.conn.at.dial)
	}
	err := error(&ctxerr.Unanswered{Ended: ctx.Err(), Why: why})
	if i := slices.Index(s.queue, c); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		c.failLocked(notSent(err))
		return c.replies, c.err
	}
	// What is answered later must not be written into what the caller has.
	replies := slices.Clone(c.replies)
	for i := c.answered; i < len(replies); i++ {
		replies[i] = Reply{Err: err, Sent: c.sent}
	}
	return replies, err
}

// send is Do without the waiting.
func (s *Session) send(ops ...Op) *calls {
	c := &calls{s: s, ops: ops, done: make(chan struct{}), replies: make([]Reply, len(ops))}
	err := c.encode()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
	case s.err != nil:
		err = notSent(s.err)
	case s.closing:
		err = notSent(ErrClosed)
	}
	s.queueLocked(c, err)
	return c
}

// sendLocked sends an operation that nobody waits for.
func (s *Session) sendLocked(op Op) {
	c := &calls{s: s, ops: []Op{op}, done: make(chan struct{}), replies: make([]Reply, 1)}
	s.queueLocked(c, c.encode())
}

// encode makes the requests.
func (c *calls) encode() error {
	e := encoder{make([]byte, 0, 256)}
	for i := range c.ops {
		op := &c.ops[i]
		if err := e.request(0, op.code, func() { op.encode(&e) }); err != nil { // next gives it an id
			return err
		}
	}
	c.frames = e.b
	return nil
}

// queueLocked queues the operations, or fails them if there is an error already.
func (s *Session) queueLocked(c *calls, err error) {
	for i := range c.ops {
		if c.ops[i].watch != nil {
			s.watches.begin(keyOf(&c.ops[i]))
		}
	}
	if err != nil {
		c.failLocked(err)
		return
	}
	s.queue = append(s.queue, c)
	if s.conn != nil {
		s.conn.wakeUp()
	}
}

// failLocked ends the operations without the answers that are missing.
func (c *calls) failLocked(err error) {
	for i := c.answered; i < len(c.ops); i++ {
		c.replies[i] = Reply{Err: err, Sent: c.sent}
		if w := c.ops[i].watch; w != nil {
			c.s.watches.end(keyOf(&c.ops[i]), w, false, false)
		}
	}
	c.answered, c.frames, c.err = len(c.ops), nil, err
	close(c.done)
}

// notSent says of operations that were not written why they were not.
func notSent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }
