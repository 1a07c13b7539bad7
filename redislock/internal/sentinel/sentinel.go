// Package sentinel finds the primary of a deployment with Redis Sentinel, and follows it.
//
// A client makes all its connections as [Locator.Follow] says, as if there were one server. When another
// server has become the primary, the locator closes the connections to the old one, so that the
// client makes them anew. If an operator orders a fail-over, the old primary takes writes for about ten
// seconds more, and then forgets them: no connection to it may be used any more, although it answers.
package sentinel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Options say where the sentinels are, and how to connect. All fields but Auth are needed.
type Options struct {
	Sentinels []string // host:port of each
	Primary   string   // the name by which the sentinels know the primary
	// Dial connects to a sentinel or a server.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Dialed knows the connections to the primary.
	Dialed *wire.Dialed
	// Auth is the user, if there is one, and the password, of the servers and of those sentinels
	// that want one.
	Auth []string
}

// poll is the longest time between two questions to the sentinels, as of waiters to the store.
const poll = driver.DefaultPoll

// Locator knows the primary and the connections to it. Safe for concurrent use.
type Locator struct {
	o     Options
	peers []*peer
	alive context.Context // until Close
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu    sync.Mutex
	now   view
	heard time.Time // when a sentinel told it, or confirmed it
}

// view is what a sentinel says.
type view struct {
	address string // of the primary; "": nothing is known
	epoch   int64  // grows with each fail-over
}

// New returns a locator, which connects to the sentinels in the background.
func New(o Options) *Locator {
	alive, stop := context.WithCancel(context.Background())
	l := &Locator{o: o, alive: alive, stop: stop}
	for _, address := range o.Sentinels {
		w := wire.Options{Dialed: new(wire.Dialed), Greeted: greeted}
		w.Dial = func(ctx context.Context) (net.Conn, error) { return w.Dialed.Dial(ctx, address, o.Dial) }
		if o.Auth != nil {
			w.Hello = []wire.Command{{Args: append([]string{"AUTH"}, o.Auth...)}}
		}
		l.peers = append(l.peers, &peer{address, wire.Open(w)})
	}
	l.work.Go(l.watch)
	return l
}

// greeted is wire.Options.Greeted of sentinels: one that has no password refuses AUTH, and a user need not be
// allowed to PING.
func greeted(replies []wire.Reply) error {
	last := replies[len(replies)-1].Err
	if refused, ok := last.(*wire.ServerError); last == nil || ok && refused.Code() == "NOPERM" {
		return nil
	}
	if err := replies[0].Err; err != nil { // of AUTH, which says more
		return err
	}
	return last
}

// Close closes the connections to the sentinels.
func (l *Locator) Close() {
	l.mu.Lock()
	l.stop() // under the mutex: from now on no goroutine is begun
	l.mu.Unlock()
	l.work.Wait()
	for _, p := range l.peers {
		p.server.Close()
	}
}

// errDemoted says that the server that the sentinels name is a replica: they have not agreed on the next
// primary yet.
var errDemoted = fmt.Errorf("the server that the sentinels name is a replica: %w", wire.ErrFailover)

// Follow makes the options those of connections to the primary. A server that says by ROLE that it is a replica is
// left again. The locator closes the connections when another server becomes the primary.
func (l *Locator) Follow(o *wire.Options) {
	o.Dial = l.dial
	o.Hello = append(o.Hello, wire.Command{Args: []string{"ROLE"}})
	at := len(o.Hello) - 1
	o.Greeted = func(replies []wire.Reply) error {
		if role, _ := replies[at].Value.([]any); len(role) > 0 && role[0] != "master" {
			return errDemoted
		}
		for i, r := range replies {
			if r.Err != nil && i != at { // a server that does not let this user ask is believed to be the primary
				return r.Err
			}
		}
		return nil
	}
}

// dial asks the sentinels for the primary, and connects to it. If another server becomes the primary meanwhile, the
// next question closes the connection.
func (l *Locator) dial(ctx context.Context) (net.Conn, error) {
	address, err := l.ask(ctx)
	if err != nil {
		return nil, err
	}
	n, err := l.o.Dialed.Dial(ctx, address, l.o.Dial)
	return n, wire.InFailover(err)
}

// watch asks the sentinels again and again, until the locator is closed.
func (l *Locator) watch() {
	for pause.Sleep(l.alive, pause.Jitter(poll)) {
		_, _ = l.ask(l.alive) // if no sentinel answers, what was known holds
	}
}

// askWithin bounds a question to the sentinels.
const askWithin = time.Second

// forget is after how long without a sentinel that knows the present epoch an older one is believed: the
// sentinels may have been set up anew.
const forget = 10 * time.Second

// ask asks all sentinels at a time, until a majority has answered, and returns the address of the
// primary. Of what they say the highest epoch counts, as among sentinels: one that was cut off for a
// while does not know the last fail-over.
func (l *Locator) ask(ctx context.Context) (string, error) {
	type answer struct {
		view
		err error
	}
	answers := make(chan answer, len(l.peers))
	l.mu.Lock()
	if l.alive.Err() != nil {
		l.mu.Unlock()
		return "", net.ErrClosed
	}
	for _, p := range l.peers {
		l.work.Go(func() { // the slowest may answer when nobody waits any more
			ctx, cancel := context.WithTimeout(l.alive, askWithin)
			defer cancel()
			v, err := p.ask(ctx, l.o.Primary)
			answers <- answer{v, err}
		})
	}
	l.mu.Unlock()
	var best view
	var errs error
	for got, left := 0, len(l.peers); left > 0 && got <= len(l.peers)/2; left-- {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if a.err != nil {
			errs = errors.Join(errs, a.err)
			continue
		}
		got++
		if best.address == "" || a.epoch > best.epoch {
			best = a.view
		}
	}
	if best.address == "" {
		return "", errs
	}
	return l.learn(best), nil
}

// learn takes note of what sentinels say, and returns what is believed.
func (l *Locator) learn(v view) string {
	l.mu.Lock()
	if v.epoch >= l.now.epoch || time.Since(l.heard) > forget {
		l.now, l.heard = v, time.Now()
	}
	address := l.now.address
	l.mu.Unlock()
	l.o.Dialed.Drop(address)
	return address
}

// peer is a sentinel.
type peer struct {
	address string
	server  *wire.Server
}

// ask asks the sentinel for the primary, by two commands. The first one tells the epoch. Its address may be
// old: the sentinel that leads a fail-over has the new epoch there, and the old address, until the other
// replicas follow the new primary. The second one tells the new address by then.
func (p *peer) ask(ctx context.Context, primary string) (view, error) {
	replies := p.server.Do(ctx, []wire.Command{
		{Args: []string{"SENTINEL", "MASTER", primary}},
		{Args: []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary}},
	})
	return p.understand(primary, replies[0], replies[1])
}

// understand reads the replies to SENTINEL MASTER, a list of names and values, and to
// GET-MASTER-ADDR-BY-NAME, host and port. If the sentinel does not let this user ask for the latter, the
// former has to do.
func (p *peer) understand(primary string, master, address wire.Reply) (view, error) {
	fields, _ := master.Value.([]any)
	of := map[string]string{}
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		of[name], _ = fields[i+1].(string)
	}
	if now, _ := address.Value.([]any); len(now) == 2 {
		of["ip"], _ = now[0].(string)
		of["port"], _ = now[1].(string)
	}
	port, err := strconv.Atoi(of["port"])
	epoch, err2 := strconv.ParseInt(of["config-epoch"], 10, 64)
	switch {
	case master.Err != nil:
		return view{}, fmt.Errorf("sentinel %s, asked for the primary %.40q: %w", p.address, primary, master.Err)
	case errors.Join(err, err2) != nil || of["ip"] == "" || port < 1 || port > 65535 || epoch < 0:
		return view{}, fmt.Errorf("sentinel %s gives no address of the primary %.40q", p.address, primary)
	}
	return view{net.JoinHostPort(of["ip"], of["port"]), epoch}, nil
}
