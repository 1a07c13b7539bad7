package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// Options configure a quorum. The zero value is right for almost everybody. All clients of a
// quorum must have the same.
type Options struct {
	// MaxTTL is the longest TTL of a lock: longer ones are refused. A node that has restarted may have forgotten
	// its votes (vote.Voter). So its vote counts only when as much time has passed, and a hundredth more, since
	// this client first heard of the restart: by then all holds are over that could rest on what it has
	// forgotten. 0: 30 s. The nodes keep the longest MaxTTL of all clients, and a client that hears of a longer one
	// than its own waits for that.
	//
	// Nodes that have just been set up have not voted before, but nobody can know that: locks wait for that
	// time, unless Init has said that the deployment is new.
	MaxTTL time.Duration
	// Durable says that no node ever forgets what it has acknowledged: of Redis servers, that each has
	// appendonly yes and appendfsync always. Then a node counts at once when it is back, and there is no MaxTTL.
	// If that is not so, a restart can let two have a lock: a node that says so when it is opened is refused.
	//
	// Locks of durable nodes have fencing tokens, if each node has (driver.Caps.Fencing), and they can be raised
	// (vote.Raiser): each request then takes one round trip more. Nodes that may forget have none, because
	// a token could be lower than one before it, whatever the delay.
	Durable bool
	// NodeTimeout is how long a node has to answer, far below the TTL. 0: a tenth of the TTL, at least
	// 50 ms and at most a second.
	NodeTimeout time.Duration
	// Poll is Caps.Poll, at least 1 ms: the longest pause of a waiter before it asks again. Most often the pause is
	// a few times as long as an attempt takes. 0: 100 ms.
	Poll time.Duration
	// Clock is the clock that leases are trusted by, which must be that of the nodes' drivers. nil:
	// driver.HostClock.
	Clock driver.Clock
}

// The defaults of Options.
const (
	defaultMaxTTL  = 30 * time.Second
	defaultPoll    = 100 * time.Millisecond
	minNodeTimeout = 50 * time.Millisecond
	maxNodeTimeout = time.Second
)

// minTTL is the shortest TTL: most of it must be left when a majority has answered.
const minTTL = 100 * time.Millisecond

// Node is one store of a quorum.
type Node struct {
	// Name says in errors which node it is. It must not have a secret.
	Name string
	// Open opens the node's driver. It is called again, after a pause, while it fails.
	Open func(context.Context) (driver.Driver, error)
}

// quorum is the driver over nodes.
type quorum struct {
	rules   vote.Rules
	caps    driver.Caps
	clock   driver.Clock
	timeout time.Duration // Options.NodeTimeout
	nodes   []*node
	pace    pace
	longest atomic.Int64 // of Options.MaxTTL, of all clients that this one has heard of

	closing context.Context // ends when Close is called
	close   context.CancelFunc
	life    context.Context // ends when the driver is closed
	end     context.CancelFunc

	mu      sync.Mutex
	stores  map[string]string // the names of the nodes that were opened, by their driver.Caps.Store
	running int               // functions that spawn has begun
	idle    chan struct{}     // closed when there is none any more, after Close was called

	work    chan func()    // to workers that rest
	workers sync.WaitGroup // goroutines
	resting atomic.Int32   // of these
}

// New returns a driver over drivers, at least one and at most 15, each of an independent store, which must
// forget nothing that it has acknowledged unless its driver is a vote.Voter. An odd
// number is best: one more node than that tolerates no more failures. Closing the driver closes them;
// if New fails, the caller closes them. Nil options are fine.
func New(drivers []driver.Driver, o *Options) (driver.Driver, error) {
	nodes := make([]Node, len(drivers))
	names := make([]string, len(drivers))
	for i, d := range drivers {
		if d == nil {
			return nil, fmt.Errorf("driver %d of the quorum is nil", i+1)
		}
		names[i] = d.Caps().Store
		nodes[i] = Node{Name: names[i]}
	}
	q, err := prepare(nodes, identity(names), o)
	if err != nil {
		return nil, err
	}
	for i, d := range drivers {
		q.nodes[i].driver = d
		if err := q.admitNow(names[i], d); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
		if q.caps, err = q.join(q.caps, d); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
	}
	q.promise()
	return q, nil
}

// Open is New for nodes that need not all be there: it returns when a majority of them has been opened,
// and opens the others when they answer. A node that New would refuse does not vote then, and the errors of
// requests that have no majority say why. Store is driver.Caps.Store: it must be the same in every
// program that uses these nodes. An error says what is wrong with each node.
func Open(ctx context.Context, store string, nodes []Node, o *Options) (driver.Driver, error) {
	q, err := prepare(nodes, store, o)
	if err != nil {
		return nil, err
	}
	opened := make(chan error, len(nodes))
	for _, n := range q.nodes {
		q.spawn(func() { opened <- n.reach(ctx) })
	}
	failed := 0
	for left := q.rules.Majority(); left > 0; {
		select {
		case err = <-opened:
		case <-ctx.Done():
			return nil, q.abandon(ctx.Err())
		}
		if err == nil {
			left--
		} else if failed++; failed > len(nodes)-q.rules.Majority() {
			return nil, q.abandon(fmt.Errorf("no majority of the %d nodes answers", len(nodes)))
		}
	}
	for _, n := range q.nodes {
		d, err := n.opened()
		if _, refused := errors.AsType[refusal](err); refused {
			return nil, q.abandon(errors.New("a node is refused"))
		}
		if err != nil {
			continue
		}
		if q.caps, err = q.join(q.caps, d); err != nil {
			return nil, q.abandon(fmt.Errorf("%s: %w", n.name, err))
		}
	}
	q.promise()
	return q, nil
}

// abandon closes a driver that cannot be opened, at once, and returns why, with what is wrong with each node.
func (q *quorum) abandon(why error) error {
	errs := []error{why}
	for _, n := range q.nodes {
		if _, err := n.opened(); err != nil {
			errs = append(errs, err)
		}
	}
	q.end()
	return errors.Join(append(errs, q.Close())...)
}

// prepare checks the options, and returns a quorum of nodes that are not open.
func prepare(nodes []Node, store string, o *Options) (*quorum, error) {
	if o == nil {
		o = &Options{}
	}
	switch {
	case len(nodes) == 0 || len(nodes) > vote.MaxNodes:
		return nil, fmt.Errorf("a quorum of %d nodes: 1 to %d are allowed, and an odd number is best", len(nodes), vote.MaxNodes)
	case o.MaxTTL != 0 && (o.MaxTTL < minTTL || o.Durable):
		return nil, fmt.Errorf("longest TTL %v: at least %v is right, and none for durable nodes", o.MaxTTL, minTTL)
	case o.NodeTimeout < 0 || o.NodeTimeout != 0 && o.NodeTimeout < time.Millisecond:
		return nil, fmt.Errorf("node time-out %v: at least 1 ms is right", o.NodeTimeout)
	case o.Poll != 0 && o.Poll < time.Millisecond:
		return nil, fmt.Errorf("poll %v is too short: at least 1 ms", o.Poll)
	}
	q := &quorum{
		rules: vote.Rules{Nodes: len(nodes)}, clock: o.Clock, timeout: o.NodeTimeout,
		nodes: make([]*node, len(nodes)), idle: make(chan struct{}), work: make(chan func()), stores: map[string]string{},
	}
	if !o.Durable {
		q.rules.MaxTTL = cmp.Or(o.MaxTTL, defaultMaxTTL)
	}
	if q.clock == nil {
		q.clock = driver.HostClock
	}
	q.closing, q.close = context.WithCancel(context.Background())
	q.life, q.end = context.WithCancel(context.Background())
	seen := map[string]bool{}
	for i, n := range nodes {
		if seen[n.Name] {
			return nil, fmt.Errorf("%s is a node twice: each must be a store of its own", n.Name)
		}
		seen[n.Name] = true
		q.nodes[i] = &node{q: q, index: i, name: n.Name, open: n.Open}
	}
	q.caps = driver.Caps{
		Store: store, Shared: true,
		Fencing: o.Durable, MinTTL: minTTL, Poll: o.Poll,
	}
	if q.caps.Poll == 0 {
		q.caps.Poll = defaultPoll
	}
	return q, nil
}

// identity returns a name that is the same for the same stores in any order.
func identity(stores []string) string {
	sorted := slices.Sorted(slices.Values(stores))
	sum := fnv.New128a()
	sum.Write([]byte(strings.Join(sorted, "\n")))
	return fmt.Sprintf("quorum:%x", sum.Sum(nil))
}

// refusal is why a node must not vote.
type refusal string

func (r refusal) Error() string { return string(r) }

// admit refuses a node, when it is opened, that would let two clients have a majority each (P1): one that may come
// back without votes and does not say when, such as a server behind which sentinels or a cluster put a
// replica; one that is said to be durable and is not; and one that is another node, too.
func (q *quorum) admit(ctx context.Context, name string, d driver.Driver) error {
	node := d.Caps()
	forgets := node.Guarantees.Faults[driver.StoreRestart].Exclusion == driver.Breaks
	v, votes := vote.VoterOf(d)
	if q.rules.MaxTTL != 0 && forgets && !votes {
		return refusal("it may forget its votes, and does not tell when (vote.Voter): use single servers, or say that they are durable, if they are")
	}
	if votes && q.rules.MaxTTL == 0 {
		if durable, err := v.Durable(ctx); err != nil {
			return err
		} else if !durable {
			return refusal("it is said to be durable (Options.Durable, hf.durable), and is not: a Redis server needs appendonly yes and appendfsync always")
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if other, ok := q.stores[node.Store]; ok && other != name {
		return refusal(fmt.Sprintf("it is the same store as node %s, %s, or has a copy of its data: each node must be a store of its own", other, node.Store))
	}
	q.stores[node.Store] = name
	return nil
}

// admitNow is admit for a driver that is open already.
func (q *quorum) admitNow(name string, d driver.Driver) error {
	ctx, cancel := q.within(openWithin)
	defer cancel()
	return q.admit(ctx, name, d)
}

// join returns what a quorum can do that could do so much without a node.
func (q *quorum) join(c driver.Caps, d driver.Driver) (driver.Caps, error) {
	node := d.Caps()
	_, votes := vote.VoterOf(d)
	if longest := q.rules.MaxTTL; longest != 0 && votes {
		node.MaxTTL = longest
	}
	c.Shared = c.Shared && node.Shared
	c.Fencing = c.Fencing && hasTokens(d)
	c.NoNotes = c.NoNotes || node.NoNotes
	c.MinTTL = max(c.MinTTL, node.MinTTL)
	if node.MaxTTL != 0 && (c.MaxTTL == 0 || node.MaxTTL < c.MaxTTL) {
		c.MaxTTL = node.MaxTTL
	}
	c.Guarantees.Lateness = max(c.Guarantees.Lateness, node.Guarantees.Lateness)
	if c.MaxTTL != 0 && c.MinTTL > c.MaxTTL {
		return c, fmt.Errorf("no TTL suits all nodes: at least %v, at most %v", c.MinTTL, c.MaxTTL)
	}
	return c, nil
}

// promise sets what follows from what the nodes can do: with nodes that never forget, and have tokens
// that can be raised, holds have tokens.
func (q *quorum) promise() {
	q.rules.Tokens = q.caps.Fencing
	lateness := q.caps.Guarantees.Lateness
	q.caps.Guarantees = guaranteesOf(q.rules)
	q.caps.Guarantees.Lateness = lateness
}

// Caps implements driver.Driver.
func (q *quorum) Caps() driver.Caps { return q.caps }

// all calls f for each node, all at the same time, with a context that ends when the time is over, or when all
// calls have returned. It does not wait for them. On a driver that is being closed it calls f with a context
// that has ended.
func (q *quorum) all(d time.Duration, f func(context.Context, *node)) {
	ctx, cancel := q.within(d)
	var left atomic.Int32
	left.Store(int32(len(q.nodes)))
	for _, n := range q.nodes {
		ask := func() {
			f(ctx, n)
			if left.Add(-1) == 0 {
				cancel()
			}
		}
		if !q.spawn(ask) {
			ask()
		}
	}
}

// spawn runs f in the background. It returns false if the driver is closed.
func (q *quorum) spawn(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil || q.closing.Err() != nil && q.running == 0 {
		return false
	}
	q.running++
	select {
	case q.work <- f:
	default:
		q.workers.Go(func() { q.run(f) })
	}
	return true
}

// restingEach is how many workers rest at most, for each node. A goroutine begins with a small stack, which the
// client libraries below make it copy two or three times: one that has rested has a large one.
const restingEach = 2

// run is a worker: it runs f, and then what it is given while it rests.
func (q *quorum) run(f func()) {
	for {
		f()
		q.done()
		if int(q.resting.Add(1)) > restingEach*len(q.nodes) {
			q.resting.Add(-1)
			return
		}
		select {
		case f = <-q.work:
			q.resting.Add(-1)
		case <-q.closing.Done():
			return
		}
	}
}

// done counts a function out.
func (q *quorum) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running--; q.running == 0 && q.closing.Err() != nil {
		close(q.idle)
	}
}

// patience returns how long a node has to answer a request for a hold with this TTL.
func (q *quorum) patience(ttl time.Duration) time.Duration {
	if q.timeout > 0 {
		return q.timeout
	}
	return min(max(ttl/10, minNodeTimeout), maxNodeTimeout)
}

// within returns a context for requests to nodes. It does not end with the caller's, because a request
// that a majority did not wait for must arrive all the same; it ends with the driver.
func (q *quorum) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(q.life, d)
}

// alive returns an error if the driver is closed or ctx has ended.
func (q *quorum) alive(ctx context.Context) error {
	if q.closing.Err() != nil {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// closeWithin is for how long Close waits for requests that are under way, and for votes that are owed.
const closeWithin = time.Second

// Close implements driver.Driver. What a release or an attempt that failed has left at some nodes is withdrawn first, if
// they answer soon.
func (q *quorum) Close() error {
	q.mu.Lock()
	if q.closing.Err() != nil {
		q.mu.Unlock()
		return driver.ErrClosed
	}
	q.close()
	if q.running == 0 {
		close(q.idle)
	}
	q.mu.Unlock()
	select {
	case <-q.idle:
	case <-time.After(closeWithin):
	}
	q.end()
	<-q.idle
	q.workers.Wait()
	var errs []error
	for _, n := range q.nodes {
		if n.driver != nil {
			errs = append(errs, n.driver.Close())
		}
	}
	return errors.Join(errs...)
}
