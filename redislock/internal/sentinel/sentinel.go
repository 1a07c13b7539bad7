// Package sentinel finds the primary of a deployment with Redis Sentinel, and follows it, for the
// adapters of client libraries.
//
// An adapter makes all its connections by [Locator.Dial], as if there were one server. When another
// server has become the primary, the locator closes the connections to the old one, so that the
// adapter makes them anew.
//
// Suppose an operator orders a fail-over. The old primary takes writes for about ten seconds more, and
// then forgets them. So no connection to it may be used any more, although it answers.
package sentinel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Options say where the sentinels are, and how to connect. All fields but Auth are needed.
type Options struct {
	Sentinels []string // host:port of each
	Primary   string   // the name by which the sentinels know the primary
	// Dial connects to a sentinel or a server.
	Dial func(ctx context.Context, address string) (net.Conn, error)
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
	conns  map[*tracked]struct{}
	closed bool
}

// view is what a sentinel says.
type view struct {
	address string // of the primary; "": nothing is known
	epoch   int64  // grows with each fail-over
}

// New returns a locator. It makes no connection before it is asked for one.
func New(o Options) *Locator {
	alive, stop := context.WithCancel(context.Background())
	l := &Locator{o: o, alive: alive, stop: stop, conns: map[*tracked]struct{}{}}
	for _, address := range o.Sentinels {
		l.peers = append(l.peers, &peer{address: address})
	}
	l.work.Go(l.watch)
	return l
}

// Close closes the connections to the primary and to the sentinels.
func (l *Locator) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
	l.closeUnless("")
	for _, p := range l.peers {
		p.close()
	}
}

// ErrDemoted says that the server that the sentinels name is a replica: they have not agreed on the next
// primary yet.
var ErrDemoted = fmt.Errorf("the server that the sentinels name is a replica: %w", redislock.ErrFailover)

// Dial asks the sentinels for the primary, connects to it, and checks that it is one. The locator closes
// the connection when another server becomes the primary.
func (l *Locator) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	for {
		n, err := l.dialOnce(ctx)
		if errors.Is(err, errMoved) && ctx.Err() == nil {
			continue // another server has become the primary meanwhile
		}
		return n, err
	}
}

// errMoved says that a connection leads to a server that is the primary no longer.
var errMoved = errors.New("another server has become the primary")

func (l *Locator) dialOnce(ctx context.Context) (net.Conn, error) {
	address, err := l.ask(ctx)
	if err != nil {
		return nil, err
	}
	n, err := l.o.Dial(ctx, address)
	if err != nil {
		return nil, redislock.InFailover(err)
	}
	t := &tracked{Conn: n, of: l, address: address}
	if err := l.track(t); err != nil {
		n.Close()
		return nil, err
	}
	if err := l.check(ctx, n); err != nil {
		if l.left(address) {
			err = fmt.Errorf("%w: %w", errMoved, err) // so the locator has closed the connection
		}
		t.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return t, nil
}

// dialWithin bounds the making of a connection. Suppose the server stands still: it accepts the
// connection, and answers nothing.
const dialWithin = 5 * time.Second

// track notes a connection. It returns an error if the locator is closed, or if there is another primary
// already.
func (l *Locator) track(t *tracked) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return net.ErrClosed
	case l.now.address != t.address:
		return errMoved
	}
	l.conns[t] = struct{}{}
	return nil
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
	commands := []redislock.Command{{Args: []string{"ROLE"}}}
	if l.o.Auth != nil {
		commands = append([]redislock.Command{{Args: append([]string{"AUTH"}, l.o.Auth...)}}, commands...)
	}
	replies, err := wire.Exchange(ctx, n, commands)
	if err != nil {
		return err
	}
	role, _ := replies[len(replies)-1].Value.([]any)
	if len(role) > 0 && role[0] != "master" {
		return ErrDemoted
	}
	return nil
}

// Note looks at replies of the server to requests that came by connections of the locator. If one says
// that the server is a replica, the locator closes all connections to it.
func (l *Locator) Note(replies []redislock.Reply) {
	if Demoted(replies) {
		l.closeUnless("")
	}
}

// Demoted reports whether one of the replies says that the server is a replica.
func Demoted(replies []redislock.Reply) bool { return slices.ContainsFunc(replies, demoted) }

// demoted reports whether a reply says that the server is a replica. A batch replies to each of its
// items, so one of them may say it.
func demoted(r redislock.Reply) bool {
	if refused, ok := r.Err.(*redislock.ServerError); ok {
		return readOnly(refused.Text)
	}
	items, _ := r.Value.([]any)
	return slices.ContainsFunc(items, func(item any) bool {
		text, ok := item.(string)
		return ok && readOnly(text)
	})
}

// readOnly reports whether an error is that of a write on a replica. Before version 7 that of a script
// has more in front.
func readOnly(text string) bool {
	return strings.HasPrefix(text, "READONLY You can't write") || strings.HasPrefix(text, "MASTERDOWN ") ||
		strings.Contains(text, " -READONLY You can't write")
}

// closeUnless closes all connections but those to the address.
func (l *Locator) closeUnless(address string) {
	l.mu.Lock()
	var stale []*tracked
	for t := range l.conns {
		if t.address != address {
			stale = append(stale, t)
			delete(l.conns, t)
		}
	}
	l.mu.Unlock()
	for _, t := range stale {
		t.Conn.Close()
	}
}

// tracked is a connection to the primary.
type tracked struct {
	net.Conn
	of      *Locator
	address string
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.conns, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// watch asks the sentinels again and again, while there are connections, until the locator is closed.
func (l *Locator) watch() {
	for pause.Sleep(l.alive, pause.Jitter(poll)) {
		l.mu.Lock()
		idle := len(l.conns) == 0
		l.mu.Unlock()
		if !idle {
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
			v, err := p.ask(ctx, &l.o)
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
	l.closeUnless(address)
	return address
}

// peer is a sentinel.
type peer struct {
	address string
	turn    sync.Mutex // one question at a time
	conn    net.Conn   // nil: there is none; turn guards it
}

// ask asks the sentinel for the primary, by two commands. The first one tells the epoch. Its address may be
// old: the sentinel that leads a fail-over has the new epoch there, and the old address, until the other
// replicas follow the new primary. The second one tells the new address by then.
func (p *peer) ask(ctx context.Context, o *Options) (view, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	commands := []redislock.Command{
		{Args: []string{"SENTINEL", "MASTER", o.Primary}},
		{Args: []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", o.Primary}},
	}
	for fresh := p.conn == nil; ; fresh = true {
		replies, err := p.exchange(ctx, o, commands)
		if err != nil && !fresh && ctx.Err() == nil { // the sentinel may have been started again
			continue
		}
		if err != nil {
			return view{}, fmt.Errorf("sentinel %s: %w", p.address, err)
		}
		return p.understand(o, replies[0], replies[1])
	}
}

// exchange sends commands, on a new connection if there is none. If the sentinel wants a password, it
// gets that of the servers.
func (p *peer) exchange(ctx context.Context, o *Options, commands []redislock.Command) ([]redislock.Reply, error) {
	if p.conn == nil {
		n, err := o.Dial(ctx, p.address)
		if err != nil {
			return nil, err
		}
		p.conn = n
	}
	replies, err := wire.Exchange(ctx, p.conn, commands)
	if err == nil && o.Auth != nil && wantsPassword(replies[0]) {
		auth := redislock.Command{Args: append([]string{"AUTH"}, o.Auth...)}
		replies, err = wire.Exchange(ctx, p.conn, append([]redislock.Command{auth}, commands...))
		if err == nil {
			if refused := replies[0]; refused.Err != nil {
				return slices.Repeat([]redislock.Reply{refused}, len(commands)), nil
			}
			replies = replies[1:]
		}
	}
	if err != nil {
		p.conn.Close()
		p.conn = nil
		return nil, err
	}
	return replies, nil
}

func wantsPassword(r redislock.Reply) bool {
	refused, ok := r.Err.(*redislock.ServerError)
	return ok && refused.Code() == "NOAUTH"
}

// understand reads the replies to SENTINEL MASTER, a list of names and values, and to
// GET-MASTER-ADDR-BY-NAME, host and port. If the sentinel does not let this user ask for the latter, the
// former has to do.
func (p *peer) understand(o *Options, master, address redislock.Reply) (view, error) {
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
		return view{}, fmt.Errorf("sentinel %s, asked for the primary %.40q: %w", p.address, o.Primary, master.Err)
	case errors.Join(err, err2) != nil || of["ip"] == "" || port < 1 || port > 65535 || epoch < 0:
		return view{}, fmt.Errorf("sentinel %s gives no address of the primary %.40q", p.address, o.Primary)
	}
	return view{net.JoinHostPort(of["ip"], of["port"]), epoch}, nil
}

func (p *peer) close() {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
