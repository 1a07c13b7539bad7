// Package sentinel finds the primary of a deployment with Redis Sentinel, and follows it.
//
// A client makes all its connections by [Locator.Dial], as if there were one server. When another
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
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Secure bool // Dial makes connections with TLS
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

	mu     sync.Mutex
	now    view
	heard  time.Time // when a sentinel told it, or confirmed it
	closed bool
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
		dialed, hello := new(wire.Dialed), []wire.Command(nil)
		if o.Auth != nil {
			hello = []wire.Command{{Args: append([]string{"AUTH"}, o.Auth...)}}
		}
		l.peers = append(l.peers, &peer{address, wire.Open(wire.Options{
			Dial:   func(ctx context.Context) (net.Conn, error) { return dialed.Dial(ctx, address, o.Dial) },
			Dialed: dialed, Secure: o.Secure, Hello: hello, Lenient: true,
		})})
	}
	l.work.Go(l.watch)
	return l
}

// Close closes the connections to the sentinels.
func (l *Locator) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
	for _, p := range l.peers {
		p.server.Close()
	}
}

// errDemoted says that the server that the sentinels name is a replica: they have not agreed on the next
// primary yet.
var errDemoted = fmt.Errorf("the server that the sentinels name is a replica: %w", wire.ErrFailover)

// Dial asks the sentinels for the primary, connects to it, and checks that it is one. The locator closes
// the connection when another server becomes the primary. Ctx has a deadline.
func (l *Locator) Dial(ctx context.Context) (net.Conn, error) {
	for {
		address, err := l.ask(ctx)
		if err != nil {
			return nil, err
		}
		n, err := l.dialOnce(ctx, address)
		if l.left(address) && ctx.Err() == nil {
			if err == nil {
				n.Close()
			}
			continue // another server has become the primary meanwhile
		}
		return n, err
	}
}

func (l *Locator) dialOnce(ctx context.Context, address string) (net.Conn, error) {
	n, err := l.o.Dialed.Dial(ctx, address, l.o.Dial)
	if err != nil {
		return nil, wire.InFailover(err)
	}
	if err := l.check(ctx, n); err != nil {
		n.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return n, nil
}

// left reports whether another server has become the primary.
func (l *Locator) left(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed && l.now.address != address
}

// check returns an error if the server is not a primary. A server that does not let this user ask is
// believed to be one.
func (l *Locator) check(ctx context.Context, n net.Conn) error {
	commands := []wire.Command{{Args: []string{"ROLE"}}}
	if l.o.Auth != nil {
		commands = append([]wire.Command{{Args: append([]string{"AUTH"}, l.o.Auth...)}}, commands...)
	}
	replies, err := wire.Exchange(ctx, n, commands)
	if err != nil {
		return err
	}
	role, _ := replies[len(replies)-1].Value.([]any)
	if len(role) > 0 && role[0] != "master" {
		return errDemoted
	}
	return nil
}

// watch asks the sentinels again and again, while there are connections, until the locator is closed.
func (l *Locator) watch() {
	for pause.Sleep(l.alive, pause.Jitter(poll)) {
		if l.o.Dialed.Any() {
			_, _ = l.ask(l.alive) // if no sentinel answers, what was known holds
		}
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
	answers := make(chan answer, len(l.peers))
	if !l.askEach(answers) {
		return "", net.ErrClosed
	}
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
			if errs == nil {
				errs = a.err
			} else {
				errs = fmt.Errorf("%w; %w", errs, a.err)
			}
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

// answer is that of one sentinel.
type answer struct {
	view
	err error
}

// askEach sends the answer of each sentinel, or that there is none, to answers. It reports false if the
// locator is closed. The slowest may answer when nobody waits any more.
func (l *Locator) askEach(answers chan<- answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	for _, p := range l.peers {
		l.work.Go(func() {
			ctx, cancel := context.WithTimeout(l.alive, askWithin)
			defer cancel()
			v, err := p.ask(ctx, l.o.Primary)
			answers <- answer{v, err}
		})
	}
	return true
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
