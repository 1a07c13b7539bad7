package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// Options configure a quorum. The zero value is right for almost everybody. All clients of a
// quorum must have the same.
type Options struct {
	// Durable says that no node ever forgets what it has acknowledged: of Redis servers, that each has appendonly yes
	// and appendfsync always. Then locks have fencing tokens, if each node has some that can be raised: Redis in
	// Holdfast's own layout. Nodes of Redis are to be opened with hf.forget=go, so that they vote at once when they are
	// back. If it is not so, a restart can let two have a lock: a node that says so when it is opened is refused.
	//
	// Else a node is refused that may grant, after a restart, what it has forgotten: see driver.StoreRestart in its
	// Guarantees.
	Durable     bool
	NodeTimeout time.Duration // how long a node has to answer. 0: a tenth of the TTL, from 50 ms to a second
}

// minTTL is the shortest TTL: most of it must be left when a majority has answered.
const minTTL = 100 * time.Millisecond

// poll is Caps.Poll: the longest pause of a waiter before it asks again.
const poll = 100 * time.Millisecond

// Node is one store of a quorum.
type Node struct {
	Name string // says in errors which node it is; no secret
	// Open opens the node's driver. It is called again, after a pause, while it fails.
	Open func(context.Context) (driver.Driver, error)
}

// quorum is the driver over nodes.
type quorum struct {
	rules   vote.Rules
	durable bool // Options.Durable
	caps    driver.Caps
	timeout time.Duration // Options.NodeTimeout
	nodes   []*node

	closing context.Context // ends when Close is called
	close   context.CancelFunc
	life    context.Context // ends when requests to nodes must end
	end     context.CancelFunc

	mu      sync.Mutex
	calls   sync.WaitGroup     // calls of the driver, and goroutines that they have begun
	stores  map[string]*node   // the nodes that were opened, by their driver.Caps.Store
	leaving map[string][]*hold // by name: holds that are over, of which not all nodes were told yet
}

// New returns a driver over drivers, at least one and at most 15, each of an independent store, which must forget
// nothing that it has acknowledged, or grant nothing until that has ended. An odd number is best: one more node than
// that tolerates no more failures. Closing the driver closes them; if New fails, the caller closes them. Nil options
// are fine.
func New(drivers []driver.Driver, o *Options) (driver.Driver, error) {
	var nodes []Node
	var names []string
	for i, d := range drivers {
		if d == nil {
			return nil, fmt.Errorf("driver %d of the quorum is nil", i+1)
		}
		nodes, names = append(nodes, Node{Name: d.Caps().Store}), append(names, d.Caps().Store)
	}
	// The identity is the same for the same stores in any order.
	q, err := prepare(nodes, "quorum:"+strings.Join(slices.Sorted(slices.Values(names)), ","), o)
	if err != nil {
		return nil, err
	}
	for i, n := range q.nodes {
		close(n.tried)
		if err := n.accept(q.life, drivers[i]); err != nil {
			return nil, n.says(err)
		}
	}
	return q, q.join()
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
	for i, n := range q.nodes {
		q.calls.Go(func() { n.keepOpening(nodes[i].Open, opened) })
	}
	spare := len(nodes) - q.rules.Majority()
	for left := q.rules.Majority(); left > 0 && err == nil; {
		select {
		case one := <-opened:
			if _, refused := errors.AsType[refusal](one); refused {
				err = errors.New("a node is refused")
			} else if one == nil {
				left--
			} else if spare--; spare < 0 {
				err = fmt.Errorf("no majority of the %d nodes answers", len(nodes))
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err = cmp.Or(err, q.join()); err == nil {
		return q, nil
	}
	errs := []error{err}
	q.mu.Lock()
	for _, n := range q.nodes {
		errs = append(errs, n.says(n.failed))
	}
	q.mu.Unlock()
	q.end() // at once
	return nil, errors.Join(append(errs, q.Close())...)
}

// Opener returns what opens a quorum by a URL, for driver.Register. The URL lists the nodes' hosts,
// each with a port or without:
//
//	redlock://user:password@a,b:6380,c:6379/0?hf.maxttl=1m
//
// Each node is opened by the same URL with its own host, and with the scheme given here, which the program must have
// registered. Params are the parameters that go to the nodes. The hosts, the path and those parameters are the
// identity of the quorum (driver.Caps.Store), so all programs must write them alike, in any order.
//
// The parameter hf.durable (yes or no) is Options.Durable. It gives the nodes hf.forget=go, and hf.maxttl goes to them
// as it is. Neither is part of the identity.
func Opener(scheme string, params ...string) driver.Opener {
	return func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		nodes, store, o, err := parse(u, scheme, params)
		if err != nil {
			return nil, err
		}
		d, err := Open(ctx, store, nodes, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
		}
		return d, nil
	}
}

// parse returns the nodes of a URL, the identity of the quorum, and its options.
func parse(u *url.URL, scheme string, params []string) (nodes []Node, store string, o *Options, err error) {
	given, err := driver.Params(u, false, append([]string{"hf.durable", "hf.maxttl"}, params...)...)
	if err != nil {
		return nil, "", nil, err
	}
	query, hosts := u.Query(), strings.Split(u.Host, ",")
	query.Del("hf.durable")
	query.Del("hf.maxttl")
	store = query.Encode()
	durable, longest := given["hf.durable"], given["hf.maxttl"]
	o = &Options{Durable: durable == "yes"}
	if o.Durable {
		query.Set("hf.forget", "go")
	} else if longest != "" {
		query.Set("hf.maxttl", longest)
	}
	switch {
	case durable != "" && durable != "no" && !o.Durable:
		err = fmt.Errorf("URL parameter %q is %.40q: yes or no is right", "hf.durable", durable)
	case o.Durable && longest != "":
		err = errors.New("URL has both hf.durable and hf.maxttl: durable nodes have no longest TTL")
	case u.Opaque != "" || u.Fragment != "" || slices.Contains(hosts, ""):
		err = fmt.Errorf("store URL is malformed: it looks like %s://a,b,c or %s://user:password@a:1234,b:1234,c:1234", u.Scheme, u.Scheme)
	case len(hosts) < 3:
		err = errors.New("store URL has fewer than three nodes: three outlive the loss of one, five that of two")
	}
	for _, host := range hosts {
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			err = errors.New("store URL has a node with two colons: an IPv6 address is in brackets, [::1]:6379")
		}
		one := *u
		one.Scheme, one.Host, one.RawQuery = scheme, host, query.Encode()
		nodes = append(nodes, Node{Name: host, Open: func(ctx context.Context) (driver.Driver, error) {
			return driver.Open(ctx, &one)
		}})
	}
	if slices.Sort(hosts); len(slices.Compact(slices.Clone(hosts))) < len(hosts) {
		err = errors.New("store URL has a node twice: each must be a store of its own")
	}
	if store != "" {
		store = "?" + store
	}
	return nodes, u.Scheme + ":" + strings.Join(hosts, ",") + strings.TrimRight(u.Path, "/") + store, o, err
}

// prepare checks the options, and returns a quorum of nodes that are not open.
func prepare(nodes []Node, store string, o *Options) (*quorum, error) {
	if o == nil {
		o = &Options{}
	}
	switch {
	case len(nodes) == 0 || len(nodes) > vote.MaxNodes:
		return nil, fmt.Errorf("a quorum of %d nodes: 1 to %d are allowed, and an odd number is best", len(nodes), vote.MaxNodes)
	case o.NodeTimeout < 0 || o.NodeTimeout != 0 && o.NodeTimeout < time.Millisecond:
		return nil, fmt.Errorf("node time-out %v: at least 1 ms is right", o.NodeTimeout)
	}
	q := &quorum{
		rules: vote.Rules{Nodes: len(nodes)}, durable: o.Durable, timeout: o.NodeTimeout,
		nodes: make([]*node, len(nodes)), stores: map[string]*node{}, leaving: map[string][]*hold{},
		caps: driver.Caps{Store: store, Shared: true, Fencing: o.Durable, MinTTL: minTTL, Poll: poll},
	}
	q.closing, q.close = context.WithCancel(context.Background())
	q.life, q.end = context.WithCancel(context.Background())
	for i, n := range nodes {
		q.nodes[i] = &node{q: q, index: i, name: n.Name, tried: make(chan struct{}), failed: errors.New("not open yet")}
	}
	return q, nil
}

// join sets what the quorum can do, by what the nodes can that are open. Nodes that never forget, and have
// tokens that can be raised, give holds tokens.
func (q *quorum) join() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, late := &q.caps, time.Duration(0)
	for _, n := range q.nodes {
		if n.driver == nil {
			continue
		}
		node := n.driver.Caps()
		c.Shared = c.Shared && node.Shared
		c.Fencing = c.Fencing && n.raiser != nil
		c.NoNotes = c.NoNotes || node.NoNotes
		c.MinTTL = max(c.MinTTL, node.MinTTL)
		if node.MaxTTL != 0 && (c.MaxTTL == 0 || node.MaxTTL < c.MaxTTL) {
			c.MaxTTL = node.MaxTTL
		}
		late = max(late, node.Guarantees.Lateness)
		if c.MaxTTL != 0 && c.MinTTL > c.MaxTTL {
			return n.says(fmt.Errorf("no TTL suits all nodes: at least %v, at most %v", c.MinTTL, c.MaxTTL))
		}
	}
	q.rules.Tokens = c.Fencing
	c.Guarantees = guaranteesOf(q.durable, q.rules.Tokens)
	c.Guarantees.Lateness = late
	return nil
}

// Caps implements driver.Driver.
func (q *quorum) Caps() driver.Caps { return q.caps }

// enter begins a call of the driver, unless the driver is closed or ctx has ended. The caller ends it by
// q.calls.Done. Only calls, and what they have begun, begin goroutines, so Close knows when there are none.
func (q *quorum) enter(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing.Err() != nil {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q.calls.Add(1)
	return nil
}

// each calls f for each of the nodes, all at the same time, with a context that ends after d. It does not wait
// for them. The context does not end with the caller's, because a request that a majority did not wait for must
// arrive all the same; it ends with the driver.
func (q *quorum) each(nodes vote.Set, d time.Duration, f func(context.Context, *node)) {
	for _, n := range q.nodes {
		if nodes.Has(n.index) {
			q.calls.Go(func() {
				ctx, cancel := context.WithTimeout(q.life, d)
				defer cancel()
				f(ctx, n)
			})
		}
	}
}

// leaves notes that nodes are being told that a hold is over, or that all have been.
func (q *quorum) leaves(h *hold, told bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := h.grant.Name
	holds := slices.DeleteFunc(q.leaving[name], func(o *hold) bool { return o == h })
	if !told {
		holds = append(holds, h)
	}
	if q.leaving[name] = holds; len(holds) == 0 {
		delete(q.leaving, name)
	}
}

// patience returns how long a node has to answer a request for a hold with this TTL.
func (q *quorum) patience(ttl time.Duration) time.Duration {
	if q.timeout > 0 {
		return q.timeout
	}
	return min(max(ttl/10, 50*time.Millisecond), time.Second)
}

// Close implements driver.Driver. What a release or an attempt that failed has left at some nodes is withdrawn
// first, if they answer within a second.
func (q *quorum) Close() error {
	q.mu.Lock()
	closed := q.closing.Err() != nil
	q.close()
	q.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	timer := time.AfterFunc(time.Second, q.end)
	q.calls.Wait()
	timer.Stop()
	q.end()
	var errs []error
	for _, n := range q.nodes {
		if n.driver != nil {
			errs = append(errs, n.driver.Close())
		}
	}
	return errors.Join(errs...)
}
