// Package zk is a thin client of ZooKeeper's wire protocol: what locks need of it, and no more.
//
// A [Session] writes requests back to back and matches the answers, so that several operations
// take one round trip. It connects again by itself, sets its watches again, and says exactly what is
// known of each operation: done (with its zxid), refused (a [Code]), certainly not done
// ([ErrNotSent]), or unknown ([ErrConnectionLoss]). There are no locks here: see package zklock.
//
// Unless [Config.AnyServer] is set, a session is only at the leader. A server closes the connections
// of all its clients when its role changes. So a connection to a server that said "leader" on a
// second, later connection is to the leader for as long as it lives; a leader that was deposed since
// can answer reads and pings, and cannot commit a write.
package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Config says how to open a session.
type Config struct {
	// Servers are host:port of the ensemble's servers; at least one. A name may stand for several.
	Servers []string
	// Dial connects to one of Servers. nil: by TCP, to each of a name's addresses. A Dial MUST lead to the same
	// server each time that it gets the same address: srvr, by which leaders are found, is asked on connections of
	// its own.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS, if not nil, returns what each connection uses. An empty ServerName stands for the server's host.
	TLS func() *tls.Config
	// Auth is told to the server on each connection, before anything else.
	Auth []Auth
	// Timeout is the session timeout to ask for, in whole milliseconds, from 1 to what 31 bits hold. The server
	// raises or lowers it to its bounds: see Session.Timeout.
	Timeout time.Duration
	// AnyServer takes any server that answers. Otherwise the session is only at the leader, or at a server without
	// an ensemble.
	AnyServer bool
	// Leaderless says that no server led when an earlier session was opened. Then Open asks once for a leader, and
	// takes any server if there is none.
	Leaderless bool
	// Clock stamps Reply.Sent; nil: driver.HostClock. Deadlines and pauses are real time.
	Clock driver.Clock
	// Lost, if not nil, is called once, on a goroutine of its own, when the session ended otherwise than by Close.
	// err is or wraps ErrExpired, or a Code (AuthFailed). All calls have failed by then, and all watches have fired.
	Lost func(err error)
	// Failed, if not nil, is told what each server said each time that none was found, while the session is opened.
	Failed func(why error)
}

// Auth is one identity, as ZooKeeper's addauth takes it: scheme digest has user:password.
type Auth struct{ Scheme, Credentials string }

// Session is one session of ZooKeeper. It connects again by itself until it is over. Its methods
// may be called by many goroutines.
type Session struct {
	config   Config
	ctx      context.Context // ends with the session
	cancel   context.CancelFunc
	finished chan struct{} // closed when all goroutines have ended

	// Written by Open only.
	id       int64
	password []byte
	timeout  time.Duration
	isOpen   bool // Open has returned it

	mu      sync.Mutex
	zxid    int64    // the last one that was seen
	conn    *conn    // nil: suspended
	queue   []*calls // not written yet
	watches watchTable
	closing bool
	err     error // why it is over
	failed  error // while suspended: why
}

// Open connects and opens a session. If no server answers it fails and says for each why. While
// servers answer but have no leader, it waits for one for some seconds, or until ctx ends. Errors:
// [ErrNoLeader], ctx's, a Code ([AuthFailed] comes by Lost), and those of the network.
func Open(ctx context.Context, c Config) (*Session, error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("zk: no servers")
	}
	if c.Clock == nil {
		c.Clock = driver.HostClock
	}
	s := &Session{config: c, finished: make(chan struct{}), watches: watchTable{}, timeout: c.Timeout}
	first, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.isOpen = true
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.begin(first)
	go s.run(first)
	return s, nil
}

// ID returns the session's id, which is the ephemeralOwner of its nodes.
func (s *Session) ID() int64 { return s.id }

// Timeout returns what the server granted: so long after it last heard of the session the server
// ends it, or up to a tick later. It stays the same: see [ErrExpired].
func (s *Session) Timeout() time.Duration { return s.timeout }

// AnyServer reports whether the session may be at a server that does not lead.
func (s *Session) AnyServer() bool { return s.config.AnyServer }

// Err returns nil while the session may be alive, else why it ended: [ErrExpired], [ErrClosed], or a Code.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Suspended returns nil while there is a connection, else why there is none: how the last one ended, or what
// each server said since.
func (s *Session) Suspended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		return nil
	}
	return s.failed
}

// Unwatch disarms the watch for good, also for operations still under way. It asks the server to remove
// what nobody else of the session watches, and does not wait for that.
func (s *Session) Unwatch(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.watches.forget(w) {
		s.removeWatchLocked(key)
	}
}

// removeWatchLocked asks the server to remove a watch. Without a connection there is none.
func (s *Session) removeWatchLocked(key watchKey) {
	if s.conn == nil || s.err != nil || s.closing {
		return
	}
	kind := int32(2) // of data
	if key.children {
		kind = 1
	}
	s.sendLocked(Op{code: opRemoveWatches, path: key.path, number: kind})
}

// run keeps the session connected until it is over. It begins with a connection.
func (s *Session) run(c *conn) {
	defer close(s.finished)
	for {
		err := c.serve()
		if over, ok := errors.AsType[errOver](err); ok {
			s.end(over.error)
		}
		s.suspend(c, err)
		if s.Err() == nil {
			if c, err = s.resume(c.heard); err == nil {
				s.begin(c)
				continue
			}
			s.end(err)
		}
		if err := s.Err(); !errors.Is(err, ErrClosed) && s.config.Lost != nil {
			go s.config.Lost(err)
		}
		return
	}
}

// begin makes a connection that of the session.
func (s *Session) begin(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	var e encoder
	for _, a := range s.config.Auth {
		e.request(xidAuth, opAuth, func() {
			e.int32(0)
			e.string(a.Scheme)
			e.string(a.Credentials)
		})
	}
	c.prelude = append(e.b, s.watches.rearm(s.zxid)...)
	if s.closing && len(s.queue) == 0 { // the request was lost with its connection
		s.sendLocked(Op{code: opClose})
	}
	c.wakeUp()
	if s.err != nil {
		c.nc.Close()
	}
}

// suspend fails what was written to a connection that has ended.
func (s *Session) suspend(c *conn, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.failed = nil, fmt.Errorf("zk: the connection to %s was lost: %w", c.at.dial, why)
	err := ErrConnectionLoss
	if s.err != nil {
		err = s.err
	}
	for _, p := range c.pending {
		if p.calls.answered < len(p.calls.ops) {
			p.calls.failLocked(err)
		}
	}
	c.pending = nil
}

// end notes why the session is over, and tells everybody.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	if s.closing {
		err = ErrClosed // as was wanted, whichever way
	}
	s.err = err
	s.cancel()
	if s.conn != nil {
		s.conn.nc.Close()
	}
	for _, c := range s.queue {
		c.failLocked(notSent(err))
	}
	s.queue = nil
	var due []*Watch
	for key := range s.watches {
		due = s.watches.fire(due, key)
	}
	s.mu.Unlock()
	tell(due, SessionOver)
}

// Close ends the session at the server, which removes its ephemeral nodes, and waits for the
// answer. What was sent before is done before. If ctx ends first, the connection is cut, what is
// under way fails with [ErrClosed], and the server ends the session when its timeout is over; the
// error says so. Close of a session that is over returns nil. Config.Lost is not called.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.err == nil && !s.closing {
		s.closing = true
		s.sendLocked(Op{code: opClose}) // nothing is queued after it
	}
	s.mu.Unlock()
	select {
	case <-s.finished:
		return nil
	case <-ctx.Done():
	}
	s.Abandon()
	return fmt.Errorf("zk: the session was not closed, and ends with its timeout: %w", ctx.Err())
}

// Abandon cuts the connection and ends the session on this side only. At the server it lives, with its nodes, until
// its timeout is over. What is under way fails with [ErrClosed]. Config.Lost is not called.
func (s *Session) Abandon() {
	s.end(ErrClosed)
	<-s.finished
}
