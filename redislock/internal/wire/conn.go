package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// conn is one connection.
type conn struct {
	net      net.Conn
	patience time.Duration // how long the server may owe replies and send nothing when a caller gives up
	done     chan struct{} // closed when the connection has ended
	life     string        // the server's: see Command.Life. It is set before the connection is used

	mu      sync.Mutex // guards all fields to heard
	err     error      // why the connection has ended
	out     []byte     // commands to be written
	spare   []byte     // becomes out while that is written
	calls   []*call    // from first on: those that lack replies, in the order of their commands
	first   int        // in calls
	writer  *call      // the one that writes now
	hurried bool       // there is a deadline for writing
	reader  *call      // the one that reads now
	heard   time.Time  // when the server sent something last, or got a request when it owed no reply; zero: neither

	// Only the reader uses these.
	from    reader
	spin    *spinner // nil: reads park
	replies []Reply  // for understand
}

func newConn(n net.Conn, patience time.Duration) *conn {
	return &conn{net: n, from: reader{Conn: n}, spin: newSpinner(n), patience: min(patience, silence), done: make(chan struct{})}
}

// call is one call of do. The conn's mu guards it.
type call struct {
	conn    *conn
	replies []Reply
	got     int           // replies so far
	waits   bool          // for wake
	wake    chan struct{} // a value: the replies are there, the connection has ended, or the caller has to read
	stop    func() bool   // ends watch; nil: the context is not watched
	one     [1]Reply      // replies of a single command
}

// ioBuffer is the least that a read has room for. Buffers up to bufferKept are used again.
const (
	ioBuffer   = 4 << 10
	bufferKept = 64 << 10
)

// writeGrace is how much longer a write may take after the end of its caller's context. A server that takes nothing
// for so long is not there: the connection is ended, because nothing can follow half a command.
const writeGrace = 250 * time.Millisecond

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// do sends the commands and returns their replies. It reports false if the connection had ended
// before, so that nothing was sent.
func (c *conn) do(ctx context.Context, commands []Command) ([]Reply, bool) {
	own := &call{conn: c}
	if own.replies = own.one[:]; len(commands) != 1 {
		own.replies = make([]Reply, len(commands))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, false
	}
	company := c.first < len(c.calls)
	if !company {
		c.heard = time.Now()
	}
	c.out = appendCommands(c.out, commands, c.life)
	c.calls = append(c.calls, own)
	defer own.unwatch()
	if c.writer == nil {
		c.writer = own
		own.watch(ctx)
		if company { // others are likely to have something to send too
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		c.writeLocked(ctx, own)
	}
	for own.got < len(own.replies) && c.err == nil {
		if ctx.Err() != nil {
			if time.Since(c.heard) >= c.patience {
				c.failLocked(errSilent)
			}
			return c.leaveLocked(own, ctx.Err()), true
		}
		if c.reader == nil {
			c.reader = own
			own.watch(ctx)
			c.readLocked()
			c.reader = nil
			continue
		}
		if own.wake == nil {
			own.wake = make(chan struct{}, 1)
		}
		own.waits = true
		c.mu.Unlock()
		select {
		case <-own.wake:
		case <-ctx.Done():
		}
		c.mu.Lock()
		own.waits = false
	}
	return c.leaveLocked(own, c.err), true
}

// leaveLocked returns the replies to a call, with err for those that have not come, and lets
// another caller read if nobody does.
func (c *conn) leaveLocked(own *call, err error) []Reply {
	if c.reader == nil {
		c.wakeOneLocked()
	}
	if own.got == len(own.replies) {
		return own.replies
	}
	// Replies may still come for the call.
	replies := make([]Reply, len(own.replies))
	for i := copy(replies, own.replies[:own.got]); i < len(replies); i++ {
		replies[i].Err = err
	}
	return replies
}

// watch makes the end of ctx end reads and writes of the caller.
func (own *call) watch(ctx context.Context) {
	if own.stop == nil && ctx.Done() != nil {
		own.stop = context.AfterFunc(ctx, own.interrupt)
	}
}

func (own *call) unwatch() {
	if own.stop != nil {
		own.stop()
	}
}

// interrupt ends the read or write that the caller does, when its context has ended.
func (own *call) interrupt() {
	c := own.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader == own {
		c.net.SetReadDeadline(past)
	}
	if c.writer == own {
		c.net.SetWriteDeadline(time.Now().Add(writeGrace))
		c.hurried = true
	}
}

// wakeLocked wakes the caller if it waits.
func (own *call) wakeLocked() {
	if own.waits {
		select {
		case own.wake <- struct{}{}:
		default:
		}
	}
}

// wakeOneLocked wakes the first caller that waits, so that it reads.
func (c *conn) wakeOneLocked() {
	for _, other := range c.calls[c.first:] {
		if other.waits {
			other.wakeLocked()
			return
		}
	}
}

// writeLocked writes the caller's commands, and those that others add meanwhile. When the caller has
// its replies, or its context has ended, a goroutine writes the rest. It unlocks while it writes.
func (c *conn) writeLocked(ctx context.Context, own *call) {
	c.writeOnceLocked()
	for len(c.out) > 0 && c.err == nil && own.got < len(own.replies) && ctx.Err() == nil {
		c.writeOnceLocked()
	}
	if c.writer = nil; c.hurried {
		c.net.SetWriteDeadline(time.Time{})
		c.hurried = false
	}
	if len(c.out) > 0 && c.err == nil {
		c.writer = &call{conn: c}
		go c.flush()
	}
}

// writeOnceLocked writes the commands that are to be written now. It unlocks meanwhile.
func (c *conn) writeOnceLocked() {
	out := c.out
	c.out, c.spare = c.spare[:0], nil
	c.mu.Unlock()
	_, err := c.net.Write(out)
	c.mu.Lock()
	if cap(out) <= bufferKept {
		c.spare = out
	}
	if err != nil {
		c.failLocked(err)
	}
}

// flush writes all commands that are to be written.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 && c.err == nil {
		c.writeOnceLocked()
	}
	c.writer = nil
}

// readLocked reads once, and gives the replies to their callers. It unlocks while it reads.
func (c *conn) readLocked() {
	from := io.Reader(c.net)
	if c.first+1 == len(c.calls) && c.spin.wanted() {
		from = c.spin
	}
	c.mu.Unlock()
	n, err := c.from.more(from)
	replies, wrong := c.understand()
	if len(c.from.in) > largestReply && wrong == nil {
		wrong = errProtocol
	}
	c.mu.Lock()
	if n > 0 {
		c.heard = time.Now()
	}
	for _, r := range replies {
		if c.first == len(c.calls) {
			wrong = errors.New("the server has sent a reply to nothing")
			break
		}
		head := c.calls[c.first]
		head.replies[head.got] = r
		if head.got++; head.got == len(head.replies) {
			c.calls[c.first] = nil
			c.first++
			head.wakeLocked()
		}
	}
	if 2*c.first >= len(c.calls) { // so each call is moved once at most, on average
		n := copy(c.calls, c.calls[c.first:])
		clear(c.calls[n:])
		c.calls, c.first = c.calls[:n], 0
	}
	clear(replies)
	switch {
	case wrong != nil:
		c.failLocked(wrong)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.net.SetReadDeadline(time.Time{})
	case err != nil:
		c.failLocked(err)
	}
}

// understand removes the whole replies from the bytes that were read, and returns them.
func (c *conn) understand() (replies []Reply, err error) {
	replies, rest := c.replies[:0], c.from.in
	for len(rest) > 0 {
		r, size, err := c.from.parser.next(rest)
		if err != nil {
			return replies, err
		}
		if size == 0 {
			break
		}
		replies, rest = append(replies, r), rest[size:]
	}
	c.replies = replies
	if c.from.in = c.from.in[:copy(c.from.in, rest)]; len(rest) == 0 && cap(c.from.in) > bufferKept {
		c.from.in, c.replies = nil, nil
	}
	return replies, nil
}

// fail ends the connection. Calls that lack replies get the error.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

// ended reports whether the connection has ended.
func (c *conn) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	close(c.done)
	c.net.Close()
	for _, other := range c.calls[c.first:] {
		other.wakeLocked()
	}
}

// silence is how long the server may owe replies and send nothing before the connection is ended.
const silence = 10 * time.Second

var errSilent = errors.New("the server does not answer")

// idle is how long the server sends nothing before watch reads.
const idle = 100 * time.Millisecond

// watch returns when the connection has ended. While nobody uses the connection, watch reads, so that
// its end is known before the next request. If a caller comes then, watch reads the reply for it, and from
// then on callers read for themselves, until the connection is idle again.
func (c *conn) watch() {
	own := &call{conn: c}
	tick := time.NewTicker(idle)
	defer tick.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil {
		owes := c.first < len(c.calls)
		switch quiet := time.Since(c.heard); {
		case owes && quiet >= silence:
			c.failLocked(errSilent)
			continue
		case quiet >= idle && c.reader == nil:
			tick.Stop()
			c.reader = own
			wait := silence / 2
			if owes {
				wait = min(wait, silence-quiet)
			}
			c.net.SetReadDeadline(time.Now().Add(wait))
			c.readLocked()
			c.net.SetReadDeadline(time.Time{})
			c.reader = nil
			c.wakeOneLocked()
			tick.Reset(idle)
			continue
		}
		c.mu.Unlock()
		select {
		case <-tick.C:
		case <-c.done:
		}
		c.mu.Lock()
	}
}
