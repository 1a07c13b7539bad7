package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// keyspace hears when keys are deleted or expire, where the server tells by keyspace notifications. It is
// for the layout SetNX, in which other programs release locks too. While anybody waits, one goroutine of
// the client keeps one connection subscribed to the channels of the names that are waited for, and asks
// once in a poll whether the server still tells.
type keyspace struct {
	listener Listener
	prefix   string                     // of channels
	ask      func(context.Context) bool // whether the server tells
	life     context.Context
	end      context.CancelFunc
	news     chan struct{} // there are names to subscribe to
	work     sync.WaitGroup

	mu      sync.Mutex
	on      bool                // the server tells, as far as is known
	runs    bool                // the goroutine
	awaited map[string]*awaited // by channel: names that are waited for, or were a moment ago
}

// awaited is one name.
type awaited struct {
	waiters map[*wakes]struct{}
	asked   bool // the channel was sent to the server, on the present connection
	sure    bool // the server has confirmed it
}

// wakes implements driver.Wakes.
type wakes struct {
	k    *keyspace
	name *awaited
	c    chan struct{}
}

// KeyspaceParameter is the parameter of the server that says of which keyspace notifications it tells.
const KeyspaceParameter = "notify-keyspace-events"

// TellsOfKeys reports whether a value of KeyspaceParameter is enough for waiters of the layout SetNX: the
// channels of keys tell of commands that delete, and of expiry.
func TellsOfKeys(value string) bool {
	has := func(flags string) bool { return strings.Contains(value, flags) }
	return has("K") && (has("A") || has("g") && has("x"))
}

// freeing are the events after which a key may be gone.
var freeing = map[string]bool{"del": true, "expired": true, "evicted": true, "rename_from": true, "move_from": true}

// newKeyspace returns nil if the server does not tell, or does not say whether it does, and if the Conn
// cannot listen.
func (c *client) newKeyspace(ctx context.Context) *keyspace {
	l, ok := c.conn.(Listener)
	if !ok {
		return nil
	}
	db, known := l.Database()
	if !known || !c.tells(ctx) {
		return nil
	}
	k := &keyspace{
		listener: l, prefix: fmt.Sprintf("__keyspace@%d__:", db), ask: c.tells, on: true,
		news: make(chan struct{}, 1), awaited: map[string]*awaited{},
	}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// tells asks the server whether it tells. A user that may not ask it hears nothing.
func (c *client) tells(ctx context.Context) bool {
	reply := c.shared.do(ctx, []Command{{Args: []string{"CONFIG", "GET", KeyspaceParameter}}})[0]
	switch v := reply.Value.(type) { // libraries differ in maps
	case map[string]any:
		value, _ := v[KeyspaceParameter].(string)
		return TellsOfKeys(value)
	case map[any]any:
		value, _ := v[KeyspaceParameter].(string)
		return TellsOfKeys(value)
	case []any: // by the older protocol
		return str(v, 0) == KeyspaceParameter && TellsOfKeys(str(v, 1))
	}
	return false
}

// Wakes implements driver.Waker.
func (s setnx) Wakes(name string) driver.Wakes {
	if s.c.keyspace == nil {
		return nil
	}
	return s.c.keyspace.wakes(name)
}

func (k *keyspace) wakes(name string) driver.Wakes {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.life.Err() != nil {
		return nil
	}
	n := k.awaited[k.prefix+name]
	if n == nil {
		n = &awaited{waiters: map[*wakes]struct{}{}}
		k.awaited[k.prefix+name] = n
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
	return w.k.on && w.name.sure
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
func (k *keyspace) heard(channel, message string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.awaited[channel]
	switch {
	case n == nil:
	case message == "":
		n.sure = true
		n.wake()
	case freeing[message]:
		n.wake()
	}
}

// close ends the listening, and returns when it has ended.
func (k *keyspace) close() {
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
func (k *keyspace) run() {
	pause := firstListen
	for k.anyAwaited() {
		if !k.check() {
			k.rest(once())
			k.forgetIdle()
			continue
		}
		began := time.Now()
		if k.listen() == nil {
			continue
		}
		if time.Since(began) > lastListen {
			pause = firstListen
		}
		k.rest(pause)
		pause = min(2*pause, lastListen)
	}
}

// once returns how long it takes until the server is asked again whether it tells.
func once() time.Duration { return driver.DefaultPoll/2 + rand.N(driver.DefaultPoll/2) }

func (k *keyspace) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.life.Done():
	}
}

// anyAwaited waits until a name is waited for. It returns false when the driver is closed.
func (k *keyspace) anyAwaited() bool {
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

// check asks whether the server tells. When it does not any more, the waiters poll.
func (k *keyspace) check() bool {
	ctx, cancel := context.WithTimeout(k.life, askWithin)
	defer cancel()
	on := k.ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.on = on
	return on
}

// listen keeps a connection subscribed to what is waited for. It returns nil when nothing is, or when the
// server does not tell any more, and an error when the connection is lost.
func (k *keyspace) listen() error {
	l, err := k.open()
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
			if n == 0 || !k.check() {
				return nil
			}
			tick.Reset(once())
		}
	}
}

// errListen says that a connection for subscriptions is lost.
var errListen = errors.New("the connection for subscriptions is lost")

func (k *keyspace) open() (Listening, error) {
	ctx, cancel := context.WithTimeout(k.life, askWithin)
	defer cancel()
	return k.listener.Listen(ctx, k.heard)
}

func (k *keyspace) send(do func(context.Context, ...string) error, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.life, askWithin)
	defer cancel()
	return do(ctx, channels...)
}

// unasked returns the channels that are to be sent to the server.
func (k *keyspace) unasked() (channels []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for channel, n := range k.awaited {
		if !n.asked {
			n.asked = true
			channels = append(channels, channel)
		}
	}
	return channels
}

// forgetIdle forgets the names that nobody waits for any more, and returns the channels among them that the
// server was sent.
func (k *keyspace) forgetIdle() (channels []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for channel, n := range k.awaited {
		if len(n.waiters) == 0 {
			delete(k.awaited, channel)
			if n.asked {
				channels = append(channels, channel)
			}
		}
	}
	return channels
}

// deaf notes that there is no connection. The waiters poll until there is one again.
func (k *keyspace) deaf() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.awaited {
		n.asked, n.sure = false, false
		n.wake()
	}
}
