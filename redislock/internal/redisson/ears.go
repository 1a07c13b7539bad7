package redisson

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Ears hear what is published on channels. While anybody waits, one goroutine keeps one connection subscribed to
// the channels that are waited for. Nil ears hear nothing. Safe for concurrent use.
type Ears struct {
	at   listener
	life context.Context
	end  context.CancelFunc
	news chan struct{} // there are channels to subscribe to
	work sync.WaitGroup

	mu       sync.Mutex
	runs     bool                // the goroutine
	channels map[string]*channel // those that are waited for, or were a moment ago
}

type listener interface {
	Listen(ctx context.Context, heard func(channel, message string)) (*wire.Listening, error)
}

// channel is one channel. Its fields are guarded by Ears.mu.
type channel struct {
	asked     bool // it was sent to the server, on the present connection
	confirmed bool // by the server
	waiters   []*Waiter
}

// NewEars returns ears over a connection of package redislock, or nil if it is none that redislock.Dial has made
// to one server: a client library has no way to listen to channels that change, and in a cluster Redisson
// publishes on another server for each name.
func NewEars(conn any) *Ears {
	at, ok := conn.(listener)
	if !ok {
		return nil
	}
	e := &Ears{at: at, news: make(chan struct{}, 1), channels: map[string]*channel{}}
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// Waiter is woken when something is published. It is a driver.Wakes. A nil waiter hears nothing.
type Waiter struct {
	ears     *Ears
	permits  int // that it wants
	channels []*channel
	c        chan struct{}
}

// Await returns a waiter on channels, or nil if the ears hear nothing. Permits is how many it wants of a semaphore,
// whose messages say how many are free; 0: it wants to hear all messages.
func (e *Ears) Await(permits int, channels ...string) *Waiter {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life.Err() != nil {
		return nil
	}
	w := &Waiter{ears: e, permits: permits, c: make(chan struct{}, 1)}
	for _, name := range channels {
		ch := e.channels[name]
		if ch == nil {
			ch = &channel{}
			e.channels[name] = ch
			select {
			case e.news <- struct{}{}:
			default:
			}
		}
		ch.waiters = append(ch.waiters, w)
		w.channels = append(w.channels, ch)
	}
	if w.sureLocked() { // what was told before may have been meant for this waiter
		w.wake()
	}
	if !e.runs {
		e.runs = true
		e.work.Go(e.run)
	}
	return w
}

// C returns the channel that has a value when the waiter should ask.
func (w *Waiter) C() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.c
}

// Sure reports whether the server tells at present.
func (w *Waiter) Sure() bool {
	if w == nil {
		return false
	}
	w.ears.mu.Lock()
	defer w.ears.mu.Unlock()
	return w.sureLocked()
}

func (w *Waiter) sureLocked() bool {
	return !slices.ContainsFunc(w.channels, func(ch *channel) bool { return !ch.confirmed })
}

// Stop ends the waiting. If the waiter was woken for permits and has not asked since, others are woken in its place.
// The channels stay subscribed for a moment, because where one has waited another is likely to wait soon.
func (w *Waiter) Stop() {
	if w == nil {
		return
	}
	w.ears.mu.Lock()
	defer w.ears.mu.Unlock()
	for _, ch := range w.channels {
		ch.waiters = slices.DeleteFunc(ch.waiters, func(other *Waiter) bool { return other == w })
		if len(w.c) > 0 && w.permits > 0 {
			ch.wakeFor(w.permits)
		}
	}
}

func (w *Waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// wakeFor wakes those for whom so many permits may be enough, the first ones first.
func (ch *channel) wakeFor(free int) {
	for _, w := range ch.waiters {
		if w.permits <= free {
			free -= w.permits
			w.wake()
		}
	}
}

func (ch *channel) wakeAll() {
	for _, w := range ch.waiters {
		w.wake()
	}
}

// heard handles a message. What happened before a channel was confirmed, which is the message "", was not told, so
// its waiters ask then.
func (e *Ears) heard(name, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch := e.channels[name]
	if ch == nil {
		return
	}
	if free, err := strconv.Atoi(message); err == nil {
		ch.wakeFor(free)
		return
	}
	ch.confirmed = ch.confirmed || message == ""
	ch.wakeAll()
}

// Close ends the listening, and returns when it has ended.
func (e *Ears) Close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.end() // under the mutex: from now on no goroutine is begun
	e.mu.Unlock()
	e.work.Wait()
}

const (
	firstPause   = 10 * time.Millisecond // after a connection was lost or could not be made; doubles
	longestPause = time.Second
	linger       = time.Second     // for how long channels without waiters stay subscribed, about
	askWithin    = 5 * time.Second // bounds what the goroutine asks the server
)

// run listens while anybody waits.
func (e *Ears) run() {
	again := pause.Backoff{Min: firstPause, Max: longestPause}
	for {
		began := time.Now()
		e.listen()
		if time.Since(began) > longestPause {
			again.Reset()
		}
		pause.Sleep(e.life, again.Next())
		e.forget()
		e.mu.Lock()
		e.runs = len(e.channels) > 0 && e.life.Err() == nil
		runs := e.runs
		e.mu.Unlock()
		if !runs {
			return
		}
	}
}

// listen keeps a connection subscribed to what is waited for, until nothing is, or the connection is lost.
func (e *Ears) listen() {
	ctx, cancel := context.WithTimeout(e.life, askWithin)
	l, err := e.at.Listen(ctx, e.heard)
	cancel()
	if err != nil {
		return
	}
	defer e.disconnected()
	defer l.Close()
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for e.send(l.Subscribe, e.unasked()) {
		select {
		case <-e.news:
		case <-l.Lost():
			return
		case <-e.life.Done():
			return
		case <-tick.C:
			forgotten, left := e.forget()
			if left == 0 || !e.send(l.Unsubscribe, forgotten) {
				return
			}
		}
	}
}

func (e *Ears) send(do func(context.Context, ...string) error, channels []string) bool {
	if len(channels) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(e.life, askWithin)
	defer cancel()
	return do(ctx, channels...) == nil
}

// unasked returns the channels that are to be sent to the server.
func (e *Ears) unasked() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, ch := range e.channels {
		if !ch.asked {
			ch.asked = true
			names = append(names, name)
		}
	}
	return names
}

// forget forgets the channels that nobody waits for any more. It returns those of them that the server was sent, and
// how many are left.
func (e *Ears) forget() (asked []string, left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, ch := range e.channels {
		if len(ch.waiters) == 0 {
			delete(e.channels, name)
			if ch.asked {
				asked = append(asked, name)
			}
		}
	}
	return asked, len(e.channels)
}

// disconnected notes that there is no connection. The waiters ask by themselves until there is one again.
func (e *Ears) disconnected() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ch := range e.channels {
		ch.asked, ch.confirmed = false, false
		ch.wakeAll()
	}
}
