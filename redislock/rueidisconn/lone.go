package rueidisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
)

// lone is a connection for requests that have no company. The pipeline hands each
// request from goroutine to goroutine, which pays off when they are many; a
// caller that writes and reads by itself takes half the time and half the
// processor. Rueidis does so for a context that cannot end, on a connection that
// is idle. So one caller at a time uses this one, and the end of its context
// hangs up.
//
// After any failure it is given up, and opened again in the background, while
// requests take the pipeline. Safe for concurrent use.
type lone struct {
	option rueidis.ClientOption
	dial   func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
	wire   atomic.Pointer[net.Conn] // what the client speaks through
	opens  sync.WaitGroup

	mu      sync.Mutex // held while it is used
	client  rueidis.Client
	opening bool
	failed  time.Time // when it could not be opened
	closed  bool
}

// loneRetry is the least time between two failed attempts to open it.
const loneRetry = time.Second

// newLone returns a connection that is not open yet.
func newLone(option rueidis.ClientOption) *lone {
	l := &lone{option: option, dial: option.DialCtxFn}
	// It has one request at a time.
	l.option.ReadBufferEachConn, l.option.WriteBufferEachConn, l.option.RingScaleEachConn = 8<<10, 8<<10, 1
	return l
}

// errGone says that the connection has ended before anything was sent.
var errGone = errors.New("the connection is gone")

// connect connects a client that connects only once: a request must not wait for a
// connection to be made, which does not hear of the end of its context.
func (l *lone) connect() (rueidis.Client, error) {
	var connected atomic.Bool
	option := l.option
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		if connected.Swap(true) {
			return nil, errGone
		}
		wire, err := l.dial(ctx, address, dialer, config)
		if err == nil {
			l.wire.Store(&wire)
		}
		return wire, err
	}
	return rueidis.NewClient(option)
}

// do sends the commands. It returns nil, and has done nothing, if the
// connection is in use or not open.
func (l *lone) do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	if !l.mu.TryLock() {
		return nil
	}
	defer l.mu.Unlock()
	if l.client == nil {
		l.open()
		return nil
	}
	wire := l.wire.Load()
	stop := context.AfterFunc(ctx, func() { hangUp(*wire) })
	replies := send(context.Background(), l.client, commands)
	hungUp, broken := !stop(), false
	if errors.Is(replies[0].Err, errGone) {
		l.drop()
		return nil
	}
	for i := range replies {
		if err := replies[i].Err; err != nil && !isRefusal(err) {
			broken = true
			if hungUp {
				replies[i].Err = ctx.Err()
			}
		}
	}
	if hungUp || broken {
		l.drop()
	}
	return replies
}

// hangUp closes a connection without a farewell, which could take time.
func hangUp(wire net.Conn) {
	if secured, ok := wire.(*tls.Conn); ok {
		wire = secured.NetConn()
	}
	wire.Close()
}

// open opens the connection in the background. It is called with the mutex.
func (l *lone) open() {
	if l.opening || l.closed || time.Since(l.failed) < loneRetry {
		return
	}
	l.opening = true
	l.opens.Go(func() {
		client, err := l.connect()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.opening = false
		switch {
		case err != nil:
			l.failed = time.Now()
		case l.closed:
			client.Close()
		default:
			l.client = client
		}
	})
}

// drop gives the client up, if there is one. It is called with the mutex.
func (l *lone) drop() {
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}

// close ends it, and what is under way on it.
func (l *lone) close() {
	if wire := l.wire.Load(); wire != nil {
		hangUp(*wire)
	}
	l.mu.Lock()
	l.closed = true
	l.drop()
	l.mu.Unlock()
	l.opens.Wait()
}
