package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	tombs "github.com/holdfastlock/holdfast/internal/record"
	"github.com/holdfastlock/holdfast/internal/timer"
	"github.com/holdfastlock/holdfast/zklock/internal/retry"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// ErrNoQuorum says that servers of the ensemble answer and none of them serves: a majority is not there, or
// they elect a leader, which takes seconds. The error that has it says what each server said.
var ErrNoQuorum = zk.ErrNoQuorum

// ErrHungUp says that a server ended the connection in place of an answer: it has too many of this host
// (maxClientCnxns), or does not serve yet. New waits for it, for five seconds at most.
var ErrHungUp = zk.ErrHungUp

// OpenError says that the servers could not be reached, refuse the user, or are not as locks need them, as opposed to a
// mistake in the configuration. It matches the error inside it.
type OpenError struct{ Err error }

// Error returns the text of the error.
func (e *OpenError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *OpenError) Unwrap() error { return e.Err }

// Config configures a driver. Only Servers is needed.
type Config struct {
	// Servers are the ensemble's servers, as host:port; at least one.
	Servers []string
	// Prefix begins every path: elements with slashes between them, "app/locks". "": none.
	Prefix string
	// Dial connects to one of Servers. It MUST lead to the same server whenever it gets the same
	// address. nil: by TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS, if not nil, returns what each connection uses. An empty ServerName stands for the server's host.
	TLS func() *tls.Config
	// User and Password authenticate by the scheme digest. "": nobody.
	User, Password string
	// Open makes nodes that everybody may change, although there is a User. Otherwise only that user
	// may read, make and delete the nodes that this client makes; without a User everybody may.
	Open bool
	// Leader makes mutexes those of Curator's leader elections: see the constants. "": they are locks.
	Leader string
	// Poll is Caps.Poll, at least 1 ms. 0: what it takes for two polls to be as long as the server's
	// longest session, because the place of a client that has died stays for its session.
	Poll time.Duration
	// Retry says how often, and until when, a call goes on after a lost connection: see the URL's hf.retry.
	// "": "exponential:50ms:5".
	Retry string
	// OnRevoke is called when somebody asks for a lock that this client holds: see Revoke. It gets the
	// name, and the token of the hold. It MUST NOT block. nil: nobody is told.
	OnRevoke func(name string, token driver.Token)
	// Clock is the clock that holds are trusted by. nil: driver.HostClock.
	Clock driver.Clock
}

// The values of Config.Leader, and of the URL's hf.leader.
const (
	// Latch makes a mutex an entry of Curator's LeaderLatch. Its note cannot be changed then (OpAnnotate):
	// LeaderLatch stops to listen to the entry before its own once that entry's data has changed, and would
	// not hear when it goes.
	Latch = "latch"
	// Selector makes a mutex an entry of Curator's LeaderSelector, which is an InterProcessMutex.
	Selector = "selector"
)

// client is the driver.
type client struct {
	wire     zk.Config
	layout   layout
	acl      []zk.ACL
	clock    driver.Clock
	caps     driver.Caps
	onRevoke func(name string, token driver.Token)
	retry    retry.Policy

	// anyServer says that srvr of all servers has told that none of them leads, when the client was opened.
	// Each new session asks again, and is at the leader if there is one; other clients never go elsewhere (P1).
	anyServer bool

	timer      *timer.Timer
	life       context.Context // until Close
	die        context.CancelFunc
	background sync.WaitGroup

	mu          sync.Mutex
	isClosed    bool
	longest     time.Duration              // session; shorter when the server's bounds were lowered
	sessions    map[time.Duration]*session // by timeout
	records     map[ownerKey]*record
	mostRecords int // how many the map has had
	tombstones  tombs.Tombstones
	losses      chan driver.Loss
	fresh       []*record // holds whose nodes are to be watched if they last
	changed     []*record // holds whose nodes are to be looked at
	checking    bool      // somebody looks at them
}

// New returns a driver. It makes first contact, and learns the server's bounds of sessions.
func New(ctx context.Context, config Config) (driver.Driver, error) {
	c, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func connect(ctx context.Context, config Config) (*client, error) {
	l, err := newLayout(config.Prefix, config.Leader == Latch)
	switch {
	case err != nil:
		return nil, err
	case len(config.Servers) == 0:
		return nil, errors.New("no servers: at least one host:port is needed")
	case config.Poll != 0 && config.Poll < time.Millisecond:
		return nil, fmt.Errorf("poll %v is too short: at least 1 ms", config.Poll)
	case config.Leader != "" && config.Leader != Latch && config.Leader != Selector:
		return nil, fmt.Errorf("hf.leader is %.40q: %q or %q is right", config.Leader, Latch, Selector)
	case config.User == "" && config.Password != "":
		return nil, errors.New("a password without a user")
	}
	policy, err := retry.Parse(cmp.Or(config.Retry, defaultRetry))
	if err != nil {
		return nil, fmt.Errorf("hf.retry: %w", err)
	}
	c := &client{
		wire:   zk.Config{Servers: slices.Clone(config.Servers), Dial: config.Dial, TLS: config.TLS, Clock: config.Clock},
		retry:  policy,
		layout: l, acl: zk.OpenACL(), clock: config.Clock, onRevoke: config.OnRevoke,
		sessions: map[time.Duration]*session{}, records: map[ownerKey]*record{}, losses: make(chan driver.Loss, 16),
	}
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	if config.User != "" {
		c.wire.Auth = []zk.Auth{{Scheme: "digest", Credentials: config.User + ":" + config.Password}}
		if !config.Open {
			c.acl = zk.CreatorACL()
		}
	}
	c.life, c.die = context.WithCancel(context.Background())
	c.timer = timer.New(c.clock, c.sweep)
	if err := c.contact(ctx, config.Poll); err != nil {
		c.die()
		c.timer.Close()
		return nil, &OpenError{err}
	}
	return c, nil
}

// longestAsked is the longest session that is asked for.
const longestAsked = 2 * time.Minute

// contact learns the store's name and its bounds of sessions, by opening a session that is as short as
// it can be, and one that is as long.
func (c *client) contact(ctx context.Context, poll time.Duration) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	long, err := c.probe(ctx, longestAsked)
	if errors.Is(err, zk.ErrNoLeader) {
		c.anyServer = true
		long, err = c.probe(ctx, longestAsked)
	}
	if err != nil {
		return err
	}
	defer endProbe(long)
	short, err := c.probe(ctx, time.Millisecond)
	if err != nil {
		return err
	}
	defer endProbe(short)
	id, err := c.identity(ctx, long)
	if err != nil {
		return err
	}
	shortest := short.Timeout()
	if c.longest = long.Timeout(); shortest > c.longest {
		return fmt.Errorf("ZooKeeper's sessions last from %v to %v: its bounds are changing", shortest, c.longest)
	}
	if poll == 0 {
		poll = (c.longest + shortest) / 2
	}
	ops := driver.OpQueue | driver.OpNotify | driver.OpInspect | driver.OpBreak | driver.OpDowngrade | driver.OpWatch
	if !c.layout.latch {
		ops |= driver.OpAnnotate
	}
	c.caps = driver.Caps{
		Store: "zk:" + id, Ops: ops,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, Poll: poll, TokenBlock: 1,
		Guarantees: guarantees(tick(ctx, long, shortest), c.anyServer),
	}
	return nil
}

// tick returns how late a server ends sessions, at most: by its tick. If it does not tell that (conf is not in
// 4lw.commands.whitelist by default), it is the usual one, or the shortest session if that is longer, which is
// two ticks unless the server was told otherwise.
func tick(ctx context.Context, s *zk.Session, shortest time.Duration) time.Duration {
	const usual, longest = 2 * time.Second, 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, _ := s.FourLetters(ctx, "conf")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "tickTime="); ok {
			ms, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if told := time.Duration(ms) * time.Millisecond; err == nil && ms > 0 && ms <= longest.Milliseconds() {
				return told
			}
		}
	}
	return max(usual, shortest)
}

// probe opens a session that is to last so long.
func (c *client) probe(ctx context.Context, timeout time.Duration) (*zk.Session, error) {
	config := c.wire
	config.Timeout = timeout
	return c.open(ctx, config)
}

// open opens a session at the leader, or at any server if none leads and none did when the client was opened.
func (c *client) open(ctx context.Context, config zk.Config) (*zk.Session, error) {
	config.Leaderless = c.anyServer
	s, err := zk.Open(ctx, config)
	if c.anyServer && errors.Is(err, zk.ErrNoLeader) {
		config.AnyServer = true
		s, err = zk.Open(ctx, config)
	}
	return s, err
}

func endProbe(s *zk.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	s.Close(ctx)
}

// identity returns what tells this store from all others: a random text in the one node that stays for
// good. ZooKeeper itself has nothing of the kind.
func (c *client) identity(ctx context.Context, s *zk.Session) (string, error) {
	own := c.layout.own()
	for range makeParents {
		replies, err := s.Do(ctx, zk.GetData(own, nil))
		if errors.Is(err, zk.ErrConnectionLoss) {
			continue
		}
		if err != nil {
			return "", err
		}
		if replies[0].Err == nil {
			id := string(replies[0].Data)
			if len(id) != len(rand.Text()) {
				return "", fmt.Errorf("%s is not Holdfast's: it has %d bytes", own, len(id))
			}
			return id, nil
		}
		if !errors.Is(replies[0].Err, zk.NoNode) {
			return "", fmt.Errorf("reading %s: %w", own, replies[0].Err)
		}
		var ops []zk.Op
		for i := 1; i < len(own); i++ {
			if own[i] == '/' {
				ops = append(ops, zk.CreateContainer(own[:i], nil, c.acl))
			}
		}
		replies, err = s.Do(ctx, append(ops, zk.Create(own, []byte(rand.Text()), c.acl, 0))...)
		if errors.Is(err, zk.ErrConnectionLoss) {
			continue
		}
		if err != nil {
			return "", err
		}
		if err := replies[len(replies)-1].Err; err != nil && !errors.Is(err, zk.NodeExists) && !errors.Is(err, zk.NoNode) {
			return "", fmt.Errorf("making %s: %w", own, err)
		}
	}
	return "", fmt.Errorf("%s cannot be made", own)
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// requestWithin bounds a call that has no deadline of its own.
const requestWithin = 5 * time.Second

// bounded is the context of one call, bounded in time. Close ends calls by ending their sessions.
func (c *client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestWithin)
}

// defaultRetry is the policy for those who choose none.
const defaultRetry = "exponential:50ms:5"

// retrying calls do again while a connection is lost, as the policy says, and ctx lasts; and once more if
// nothing was sent because the session was found to be over: there is another then.
func (c *client) retrying(ctx context.Context, do func() error) error {
	begun := time.Now()
	err := do()
	if errors.Is(err, zk.ErrNotSent) && errors.Is(err, zk.ErrExpired) {
		err = do()
	}
	for n := 0; ; n++ {
		if !errors.Is(err, zk.ErrConnectionLoss) {
			return err
		}
		pause, again := c.retry.Next(n, time.Since(begun))
		if !again || !c.pause(ctx, pause) {
			return err
		}
		err = do()
	}
}

// pause waits for d. It returns false if the context or the client ends first.
func (c *client) pause(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	return sleep(ctx, d)
}

// alive returns why no request should be made.
func (c *client) alive(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }

// tellLocked passes a loss on, if the channel has room: the next renewal tells it again.
func (c *client) tellLocked(loss driver.Loss) {
	if c.isClosed {
		return
	}
	select {
	case c.losses <- loss:
	default:
	}
}

// closeWithin bounds the courtesies of Close.
const closeWithin = time.Second

// Close implements driver.Driver. A session is ended at once, with all that is left on it, unless a hold
// with a lock-delay is left: it keeps its name closed until the session's timeout is over.
func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.losses)
	delayed := map[*session]bool{}
	for _, r := range c.records {
		if r.session != nil && r.lockDelay > 0 && r.state == held {
			delayed[r.session] = true
		}
	}
	var sessions []*session
	for _, s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	c.die()
	c.timer.Close()
	c.background.Wait() // all sessions are open, or are not
	var closing sync.WaitGroup
	for _, s := range sessions {
		switch {
		case s.zk == nil:
		case delayed[s]:
			s.zk.Abandon()
		default:
			closing.Go(s.close)
		}
	}
	closing.Wait()
	return nil
}

// close ends the session, at the server too if it answers.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	s.zk.Close(ctx) // a courtesy: without it the session ends a little later
}
