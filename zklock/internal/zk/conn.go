package zk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// conn is one connection of a session, after the handshake. One goroutine writes, another reads.
type conn struct {
	s     *Session
	nc    net.Conn
	r     *bufio.Reader
	at    address
	heard driver.Instant // when the server last said something; the reader's

	wake chan struct{} // holds a value when there may be something to write
	over chan struct{} // closed when the reader has ended

	// Guarded by the session's mutex.
	prelude []byte    // authentication and watches: written before all else
	pending []pending // written and not answered, in their order
	xid     int32     // of the last request
}

// kept is how large a buffer may be that an idle connection keeps, and that of its reader: a thousand clients that
// wait have a thousand of them.
const kept = 4 << 10

func newReader(nc net.Conn) *bufio.Reader { return bufio.NewReaderSize(nc, kept) }

// pending is one operation that the server has not answered.
type pending struct {
	calls *calls
	i     int
	xid   int32
}

const passwordSize = 16

// connected is what a handshake agrees on: the client offers one, and the server answers with one.
type connected struct {
	timeout  time.Duration // 0: the session has ended
	id       int64
	password []byte
}

// handshake opens a session, or resumes the one that is offered (id not 0).
func handshake(ctx context.Context, nc net.Conn, r io.Reader, offer connected, zxid int64) (connected, error) {
	defer closeWith(ctx, nc)()
	var e encoder
	e.int32(0)
	e.int32(0) // the protocol's version
	e.int64(zxid)
	e.int32(int32(offer.timeout / time.Millisecond))
	e.int64(offer.id)
	e.bytes(offer.password)
	e.bool(false) // a server without a quorum is of no use
	e.endFrame(0)
	if _, err := nc.Write(e.b); err != nil {
		return connected{}, ended(ctx, err)
	}
	frame, err := readFrame(r, nil)
	if err != nil {
		return connected{}, ended(ctx, err)
	}
	d := decoder{b: frame}
	d.int32() // the protocol's version
	c := connected{timeout: time.Duration(d.int32()) * time.Millisecond, id: d.int64(), password: d.bytes()}
	if d.err == nil && c.timeout > 0 && (c.id == 0 || len(c.password) != passwordSize) {
		d.err = errGarbage
	}
	c.timeout = max(c.timeout, 0)
	return c, d.err
}

// readFrame reads a frame, into buf if it fits. A frame that is announced and does not come takes no more memory than a
// few times what came.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int64(int32(binary.BigEndian.Uint32(length[:])))
	if n < 0 || n > maxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes", errGarbage, n)
	}
	b := bytes.NewBuffer(buf[:0])
	_, err := io.CopyN(b, r, n)
	return b.Bytes(), err
}

// serve writes and reads until the connection ends, and returns why it did.
func (c *conn) serve() error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	err := c.read()
	close(c.over)
	c.nc.Close()
	<-written
	return err
}

// patience is how long the server may say nothing. Pings are sent when nothing else was for half of
// it, so that it always has something to answer.
func (c *conn) patience() time.Duration { return c.s.Timeout() * 2 / 3 }

// write writes the queue, all that is in it at once, and pings when there was nothing.
func (c *conn) write() {
	idle := time.NewTimer(c.patience() / 2)
	defer idle.Stop()
	ping := false
	var buf []byte
	for {
		frames := c.next(ping, buf)
		if len(frames) > 0 {
			c.nc.SetWriteDeadline(time.Now().Add(c.patience()))
			if _, err := c.nc.Write(frames); err != nil {
				c.nc.Close() // ends the reader
				return
			}
			idle.Reset(c.patience() / 2)
			ping = false
			if cap(frames) <= kept {
				buf = frames[:0]
			}
			continue
		}
		select {
		case <-c.wake:
		case <-idle.C:
			ping = true
		case <-c.over:
			return
		}
	}
}

// wakeUp has the writer look at the queue.
func (c *conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next takes what there is to write off the queue, and appends it to buf. It gives the requests their ids, and notes that
// answers to them are due.
func (c *conn) next(ping bool, buf []byte) []byte {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := append(buf[:0], c.prelude...)
	c.prelude = nil
	if ping && len(frames) == 0 && len(s.queue) == 0 {
		e := encoder{frames}
		e.request(xidPing, opPing, func() {})
		return e.b
	}
	now := s.config.Clock.Now()
	for _, calls := range s.queue {
		calls.sent = now
		own := calls.frames
		for i := range calls.ops {
			c.xid = max(1, c.xid+1) // negative ids and 0 have meanings of their own
			binary.BigEndian.PutUint32(own[4:], uint32(c.xid))
			own = own[4+binary.BigEndian.Uint32(own):]
			c.pending = append(c.pending, pending{calls, i, c.xid})
		}
		frames, calls.frames = append(frames, calls.frames...), nil
	}
	clear(s.queue)
	s.queue = s.queue[:0]
	return frames
}

// read takes the server's answers until the connection ends.
func (c *conn) read() error {
	var buf []byte
	for {
		c.nc.SetReadDeadline(time.Now().Add(c.patience()))
		frame, err := readFrame(c.r, buf)
		if err != nil {
			return err
		}
		c.heard = c.s.config.Clock.Now()
		if cap(frame) <= kept {
			buf = frame
		}
		if err := c.take(frame); err != nil {
			return err
		}
	}
}

// errOver says that a session is over, and why.
type errOver struct{ error }

func (e errOver) Unwrap() error { return e.error }

// take deals with one frame.
func (c *conn) take(frame []byte) error {
	d := decoder{b: frame}
	xid, zxid, code := d.int32(), d.int64(), Code(d.int32())
	if d.err != nil {
		return d.err
	}
	switch xid {
	case xidEvent:
		what, _, path := Event(d.int32()), d.int32(), d.string()
		if d.err == nil {
			c.s.mu.Lock()
			due := c.s.watches.tell(what, path)
			c.s.mu.Unlock()
			tell(due, what)
		}
		return d.err
	case xidAuth:
		if code != 0 {
			return errOver{code}
		}
		return nil
	case xidPing, xidSetWatches:
		if code == SessionExpired {
			return errOver{ErrExpired}
		}
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.zxid = max(c.s.zxid, zxid)
		return nil
	}
	return c.answer(xid, zxid, code, &d)
}

// answer gives an answer to whom it is for.
func (c *conn) answer(xid int32, zxid int64, code Code, d *decoder) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(c.pending) == 0 || c.pending[0].xid != xid {
		return fmt.Errorf("%w: an answer to no request", errGarbage)
	}
	p := c.pending[0]
	op, r := &p.calls.ops[p.i], Reply{Zxid: zxid}
	if code != 0 {
		r.Err = code
	} else if op.decode(d, &r); d.err != nil {
		return d.err
	}
	switch r.Err {
	case SessionExpired:
		return errOver{ErrExpired}
	case SessionMoved:
		// Another connection has the session, and the server ends this one. Nothing is known of requests that follow.
		return SessionMoved
	}
	c.pending[0] = pending{}
	c.pending = c.pending[1:]
	s.zxid = max(s.zxid, r.Zxid)
	r.Committed, r.Sent = op.writes() && committed(r.Err), p.calls.sent
	p.calls.replies[p.i] = r
	p.calls.answered = p.i + 1
	if w := op.watch; w != nil {
		absent := code == NoNode
		atServer := code == 0 || absent && op.code == opExists
		if s.watches.end(keyOf(op), w, atServer, absent) {
			s.removeWatchLocked(keyOf(op))
		}
	}
	if p.calls.answered == len(p.calls.ops) {
		close(p.calls.done)
	}
	if op.code == opClose {
		return errOver{ErrClosed}
	}
	return nil
}
