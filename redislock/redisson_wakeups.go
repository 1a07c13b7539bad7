package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// wakeups hears when names may be free, for the layout Redisson, which has no queue and in which programs in
// Java release locks too. While anybody waits, one goroutine of the client keeps one connection subscribed to
// the channels of the names that are waited for.
type wakeups struct {
	open     listen
	channels func(name string) []string // on which the name's releases are told
	life     context.Context
	end      context.CancelFunc
	news     chan struct{} // there are names to subscribe to
	work     sync.WaitGroup

	mu      sync.Mutex
	runs    bool                  // the goroutine
	awaited map[string]*awaited   // names that are waited for, or were a moment ago
	of      map[string][]*awaited // the same, by channel: Redisson has one for several names
}

// awaited is one name.
type awaited struct {
	channels []string
	waiters  map[*wakes]struct{}
	asked    bool                // the channels were sent to the server, on the present connection
	heard    map[string]struct{} // the channels that the server has confirmed
}

// sure reports whether all channels are confirmed.
func (n *awaited) sure() bool { return len(n.heard) == len(n.channels) }

// listen returns a connection for subscriptions: see wire.Server.Listen.
type listen func(ctx context.Context, heard func(channel, message string)) (listening, error)

// listening is a connection for subscriptions: see wire.Listening and cluster.Listening.
type listening interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Lost() <-chan struct{}
	Close()
}

// listenerOf returns how to listen over a Conn, to sharded channels or to others, or nil if it cannot. Of the
// others a cluster's servers pass on all that is published, so waiters there poll.
func listenerOf(conn Conn, sharded bool) listen {
	switch l := conn.(type) {
	case *cluster.Conn:
		if sharded {
			return func(_ context.Context, heard func(channel, message string)) (listening, error) {
				return l.ListenShards(heard), nil
			}
		}
	case interface {
		Listen(ctx context.Context, sharded bool, heard func(channel, message string)) (*wire.Listening, error)
	}:
		return func(ctx context.Context, heard func(channel, message string)) (listening, error) {
			one, err := l.Listen(ctx, false, heard)
			if err != nil {
				return nil, err // and not a *wire.Listening that is nil
			}
			return one, nil
		}
	}
	return nil
}

func newWakeups(open listen, channels func(name string) []string) *wakeups {
	k := &wakeups{
		open: open, channels: channels,
		news: make(chan struct{}, 1), awaited: map[string]*awaited{}, of: map[string][]*awaited{},
	}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// wakes implements driver.Wakes.
type wakes struct {
	k    *wakeups
	name *awaited
	c    chan struct{}
}

func (k *wakeups) wakes(name string) driver.Wakes {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life.Err() != nil {
		return nil
	}
	n := k.awaited[name]
	if n == nil {
		n = &awaited{channels: k.channels(name), waiters: map[*wakes]struct{}{}, heard: map[string]struct{}{}}
		k.awaited[name] = n
		for _, channel := range n.channels {
			k.of[channel] = append(k.of[channel], n)
		}
		select {
		case k.news <- struct{}{}:
		default:
		}
	}
	w := &wakes{k, n, make(chan struct{}, 1)}
	n.waiters[w] = struct{}{}
	if !k.runs {
		k.runs = true
		k.work.Go(k.run)
	}
	return w
}

// C implements driver.Wakes.
func (w *wakes) C() <-chan struct{} { return w.c }

// Sure implements driver.Wakes.
func (w *wakes) Sure() bool {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	return w.name.sure()
}

// Stop implements driver.Wakes. The channel stays subscribed for a moment, because where one has waited
// another is likely to wait soon.
func (w *wakes) Stop() {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	delete(w.name.waiters, w)
}

func (n *awaited) wake() {
	for w := range n.waiters {
		select {
		case w.c <- struct{}{}:
		default:
		}
	}
}

// heard handles a message of the server. What happened before a channel was confirmed is not told, so its
// waiters look then.
func (k *wakeups) heard(channel, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.of[channel] {
		if message == "" {
			n.heard[channel] = struct{}{}
		}
		n.wake()
	}
}

// close ends the listening, and returns when it has ended.
func (k *wakeups) close() {
	k.mu.Lock()
	k.end() // under the mutex: from now on no goroutine is begun
	k.mu.Unlock()
	k.work.Wait()
}

// The pauses after a connection was lost or could not be made.
const (
	firstListen = 10 * time.Millisecond
	lastListen  = time.Second
)

// askWithin bounds what the goroutine asks the server.
const askWithin = 5 * time.Second

// run listens while anybody waits.
func (k *wakeups) run() {
	again := pause.Backoff{Min: firstListen, Max: lastListen}
	for k.anyAwaited() {
		began := time.Now()
		if k.keep() == nil {
			continue
		}
		if time.Since(began) > lastListen {
			again.Reset()
		}
		pause.Sleep(k.life, again.Next())
	}
}

// once returns how long it takes until the names are forgotten that nobody waits for any more.
func once() time.Duration { return pause.Jitter(driver.DefaultPoll) }

// anyAwaited waits until a name is waited for. It returns false when the driver is closed.
func (k *wakeups) anyAwaited() bool {
	for k.life.Err() == nil {
		k.mu.Lock()
		n := len(k.awaited)
		k.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-k.news:
		case <-k.life.Done():
		}
	}
	return false
}

// keep keeps a connection subscribed to what is waited for. It returns nil when nothing is, and an error
// when the connection is lost.
func (k *wakeups) keep() error {
	l, err := k.connect()
	if err != nil {
		return err
	}
	defer k.deaf()
	defer l.Close()
	tick := time.NewTimer(once())
	defer tick.Stop()
	for {
		if err := k.send(l.Subscribe, k.unasked()); err != nil {
			return err
		}
		select {
		case <-k.news:
		case <-l.Lost():
			return errListen
		case <-k.life.Done():
			return nil
		case <-tick.C:
			if err := k.send(l.Unsubscribe, k.forgetIdle()); err != nil {
				return err
			}
			k.mu.Lock()
			n := len(k.awaited)
			k.mu.Unlock()
			if n == 0 {
				return nil
			}
			tick.Reset(once())
		}
	}
}

// errListen says that a connection for subscriptions is lost.
var errListen = errors.New("the connection for subscriptions is lost")

func (k *wakeups) connect() (listening, error) {
	ctx, cancel := context.WithTimeout(k.life, askWithin)
	defer cancel()
	return k.open(ctx, k.heard)
}

func (k *wakeups) send(do func(context.Context, ...string) error, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.life, askWithin)
	defer cancel()
	return do(ctx, channels...)
}

// unasked returns the channels that are to be sent to the server.
func (k *wakeups) unasked() (channels []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.awaited {
		if !n.asked {
			n.asked = true
			channels = append(channels, n.channels...)
		}
	}
	return channels
}

// forgetIdle forgets the names that nobody waits for any more, and returns the channels among them that the
// server was sent.
func (k *wakeups) forgetIdle() (channels []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, n := range k.awaited {
		if len(n.waiters) > 0 {
			continue
		}
		delete(k.awaited, name)
		for _, channel := range n.channels {
			k.of[channel] = slices.DeleteFunc(k.of[channel], func(other *awaited) bool { return other == n })
			if len(k.of[channel]) == 0 {
				delete(k.of, channel)
				if n.asked {
					channels = append(channels, channel)
				}
			}
		}
	}
	return channels
}

// deaf notes that there is no connection. The waiters poll until there is one again.
func (k *wakeups) deaf() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.awaited {
		n.asked = false
		clear(n.heard)
		n.wake()
	}
}
