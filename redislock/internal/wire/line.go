package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
)

// line is a connection for requests that is made again when it is lost.
type line struct {
	o        *Options
	patience time.Duration        // see conn
	now      atomic.Pointer[conn] // nil: there is none
	stop     context.CancelFunc
	work     sync.WaitGroup

	mu   sync.Mutex
	next *attempt      // to connect: the one under way, or the next
	poke chan struct{} // a value: somebody waits for it
}

// attempt is one attempt to connect.
type attempt struct {
	ended chan struct{}
	err   error // when it has ended
}

// The pauses between attempts to connect that nobody waits for double from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// openLine returns a line, which connects in the background.
func openLine(o *Options, patience time.Duration) *line {
	alive, stop := context.WithCancel(context.Background())
	l := &line{
		o: o, patience: patience, stop: stop,
		next: &attempt{ended: make(chan struct{})}, poke: make(chan struct{}, 1),
	}
	l.work.Go(func() { l.maintain(alive) })
	return l
}

// errLost says that each connection was lost before anything was sent.
var errLost = errors.New("the server closes its connections")

// do sends commands. Without a connection it waits for the next attempt to connect, whose error it returns.
func (l *line) do(ctx context.Context, commands []Command) []Reply {
	for range 3 {
		if replies, sent := l.try(ctx, commands); sent {
			return replies
		}
		if err := l.await(ctx); err != nil {
			return Failed(len(commands), err)
		}
	}
	return Failed(len(commands), errLost)
}

// try sends commands. It reports false if there is no connection at the moment, and nothing was sent.
func (l *line) try(ctx context.Context, commands []Command) ([]Reply, bool) {
	if c := l.now.Load(); c != nil {
		return c.do(ctx, commands)
	}
	return nil, false
}

// await returns nil when there is a connection, or the error of the next attempt, which it makes begin.
func (l *line) await(ctx context.Context) error {
	l.mu.Lock()
	if c := l.now.Load(); c != nil && !c.ended() {
		l.mu.Unlock()
		return nil
	}
	next := l.next
	select {
	case l.poke <- struct{}{}:
	default:
	}
	l.mu.Unlock()
	select {
	case <-next.ended:
		return next.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the connection. The line does not connect again.
func (l *line) close() {
	l.stop()
	l.work.Wait()
}

// maintain connects, again and again, until alive ends.
func (l *line) maintain(alive context.Context) {
	again := pause.Backoff{Min: firstPause, Max: longestPause}
	for alive.Err() == nil {
		c, err := connect(alive, l.o, l.patience)
		if alive.Err() != nil {
			err = net.ErrClosed
		}
		l.attempted(c, err)
		if err == nil {
			began := time.Now()
			stop := context.AfterFunc(alive, func() { c.fail(net.ErrClosed) })
			c.watch()
			l.now.Store(nil)
			stop()
			if time.Since(began) > longestPause {
				again.Reset()
			}
		} else if c != nil {
			c.fail(err)
		}
		select {
		case <-time.After(again.Next()):
		case <-l.poke:
		case <-alive.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.err = net.ErrClosed
	close(l.next.ended)
}

// attempted ends the attempt under way.
func (l *line) attempted(c *conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.now.Store(c)
	}
	select {
	case <-l.poke: // by somebody who waits for this attempt
	default:
	}
	l.next.err = err
	close(l.next.ended)
	l.next = &attempt{ended: make(chan struct{})}
}

// connectWithin bounds one attempt to connect.
const connectWithin = 5 * time.Second

// connect connects, and says who the client is. It ends with a PING: a server that has too many connections accepts
// one and then closes it. The error is the server's refusal or one of the network.
func connect(ctx context.Context, o *Options, patience time.Duration) (*conn, error) {
	own, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	n, err := o.Dial(own)
	if err == nil {
		c := newConn(n, patience)
		if err = c.greet(own, o); err == nil {
			return c, nil
		}
		c.fail(err)
	}
	if own.Err() != nil && ctx.Err() == nil {
		err = &net.OpError{Op: "greet", Net: "redis", Err: os.ErrDeadlineExceeded}
	}
	return nil, err
}

// greet sends the first commands.
func (c *conn) greet(ctx context.Context, o *Options) error {
	replies, _ := c.do(ctx, append(slices.Clone(o.Hello),
		Command{Args: []string{"INFO", "server"}}, Command{Args: []string{"INFO", "replication"}},
		Command{Args: []string{"PING"}}))
	n := len(o.Hello)
	c.life = lifeOf(&replies[n], &replies[n+1])
	replies = slices.Delete(replies, n, n+2)
	if o.Greeted != nil {
		return o.Greeted(replies)
	}
	for _, r := range replies {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
