package wire

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// Line is a connection to a server that is made again when it is lost.
type Line struct {
	o    Options
	now  atomic.Pointer[conn] // nil: there is none
	stop context.CancelFunc
	work sync.WaitGroup
}

// Options say how to connect.
type Options struct {
	Dial func(context.Context) (net.Conn, error)
	// Hello are the first commands on each connection. None of them may fail.
	Hello []redislock.Command
	// Patience is how long the server may owe replies and send nothing when a caller gives up:
	// then the connection is made anew. Without callers that give up it is ten seconds, which
	// is also the most.
	Patience time.Duration
}

// connectWithin bounds one attempt to connect; between attempts there are pauses, which double
// from the first to the longest.
const (
	connectWithin = 5 * time.Second
	firstPause    = 10 * time.Millisecond
	longestPause  = time.Second
)

// Open returns a line, which connects in the background.
func Open(o Options) *Line {
	alive, stop := context.WithCancel(context.Background())
	l := &Line{o: o, stop: stop}
	l.work.Go(func() { l.maintain(alive) })
	return l
}

// Do is like redislock.Conn's Do. It reports false if there is no connection at the moment, and
// nothing was sent.
func (l *Line) Do(ctx context.Context, commands []redislock.Command) ([]redislock.Reply, bool) {
	if c := l.now.Load(); c != nil {
		return c.do(ctx, commands)
	}
	return nil, false
}

// Close ends the connection. The line does not connect again.
func (l *Line) Close() {
	l.stop()
	l.work.Wait()
}

// maintain connects, again and again, until alive ends.
func (l *Line) maintain(alive context.Context) {
	for pause := firstPause; alive.Err() == nil; pause = min(2*pause, longestPause) {
		if c, err := l.connect(alive); err == nil {
			began := time.Now()
			stop := context.AfterFunc(alive, func() { c.fail(net.ErrClosed) })
			l.now.Store(c)
			c.watch()
			l.now.Store(nil)
			stop()
			if time.Since(began) > longestPause {
				pause = firstPause
			}
		}
		select {
		case <-time.After(pause):
		case <-alive.Done():
		}
	}
}

// connect makes a connection.
func (l *Line) connect(alive context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(alive, connectWithin)
	defer cancel()
	n, err := l.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{net: n, patience: min(l.o.Patience, silence), done: make(chan struct{})}
	// With a PING, so that the connection is not used if the server accepts it and then closes it,
	// as it does when it has too many.
	replies, _ := c.do(ctx, append(slices.Clone(l.o.Hello), redislock.Command{Args: []string{"PING"}}))
	for _, r := range replies {
		if r.Err != nil {
			c.fail(r.Err)
			return nil, r.Err
		}
	}
	c.mu.Lock()
	// So that watch reads from the first. Suppose the server is killed right after this: the next
	// request must not be sent, and lost, on the dead connection.
	c.heard = time.Time{}
	c.mu.Unlock()
	return c, nil
}
