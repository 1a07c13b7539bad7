// Package cluster is a client of a Redis Cluster, over clients of its servers.
//
// It sends each command to the server that has the key's slot, to all servers at the same time, in one
// pipeline each. It follows redirections: a command that a server has redirected was not carried out. It
// never sends a command again whose outcome is not known.
//
// While a slot is moved from one server to another, a script with several keys is refused (TRYAGAIN),
// until the move is over. Such commands are sent again until their context ends.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Options say how to connect.
type Options struct {
	Seeds []string // host:port of some servers; the others are found by them
	// Server says how to connect to one, whose connections Dialed knows.
	Server func(address string) wire.Options
}

// Conn is a redislock.Clustered. Safe for concurrent use.
type Conn struct {
	o     Options
	table atomic.Pointer[table]
	alive context.Context // until Close
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu         sync.Mutex
	reserves   bool             // each server has a connection for renewals and releases
	nodes      map[string]*node // by address
	refreshing bool
	refreshed  time.Time
	closed     bool
}

// Open connects to one of the seeds at least, and learns which servers there are, before ctx ends.
func Open(ctx context.Context, o Options) (*Conn, error) {
	alive, stop := context.WithCancel(context.Background())
	c := &Conn{o: o, alive: alive, stop: stop, nodes: map[string]*node{}}
	if err := c.learn(ctx); err != nil {
		c.Close()
		return nil, err
	}
	c.work.Go(c.watch)
	return c, nil
}

// Part implements redislock.Clustered.
func (c *Conn) Part(key string) string { return c.table.Load().of[slot.Of(key)] }

// Parts implements redislock.Clustered.
func (c *Conn) Parts() []string { return slices.Clone(c.table.Load().owners) }

// Do implements redislock.Conn.
func (c *Conn) Do(ctx context.Context, commands []wire.Command) []wire.Reply {
	return c.do(ctx, commands, (*node).shared)
}

// Reserve makes each server have a connection for renewals and releases, and returns a function like Do that
// sends by these: see wire.Server.Reserve.
func (c *Conn) Reserve() func(context.Context, []wire.Command) []wire.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserves = true
	for _, n := range c.nodes {
		n.reserved = n.server.Reserve()
	}
	return func(ctx context.Context, commands []wire.Command) []wire.Reply {
		return c.do(ctx, commands, (*node).priority)
	}
}

// way is how a node gets commands.
type way func(*node, context.Context, []wire.Command) []wire.Reply

// What a command is sent again for, when it was not carried out, and for how long.
const (
	maxRedirections = 16
	firstPause      = 5 * time.Millisecond // doubles while a slot is moved
	longestPause    = 100 * time.Millisecond
	movesWithin     = 5 * time.Second // how long a command without a deadline waits for that
)

// do sends commands. Those with the same key are carried out in order, unless its slot is being moved.
func (c *Conn) do(ctx context.Context, commands []wire.Command, by way) []wire.Reply {
	if len(commands) == 1 { // as most often: nothing is to be grouped
		if address := c.table.Load().addressOf(&commands[0]); address != "" {
			replies := c.exchange(ctx, address, commands, by)
			if replies[0].Err == nil {
				return replies
			}
			return c.follow(ctx, []bundle{{address, false, []int{0}}}, commands, replies, by)
		}
	}
	replies := make([]wire.Reply, len(commands))
	all := c.route(commands, replies)
	c.send(ctx, all, commands, replies, by)
	return c.follow(ctx, all, commands, replies, by)
}

// follow sends commands again that were not carried out, and returns the last replies.
func (c *Conn) follow(
	ctx context.Context, sent []bundle, commands []wire.Command, replies []wire.Reply, by way,
) []wire.Reply {
	began, moved := time.Now(), pause.Backoff{Min: firstPause, Max: longestPause}
	for hops := 0; hops <= maxRedirections; {
		rest, moving := c.again(sent, commands, replies)
		if len(rest) == 0 || moving && time.Since(began) >= movesWithin {
			break
		}
		if moving {
			if !pause.Sleep(ctx, moved.Next()) {
				return replies // not carried out, and the replies say so
			}
		} else {
			hops++
		}
		c.send(ctx, rest, commands, replies, by)
		sent = rest
	}
	return replies
}

// bundle is those of the commands that one server gets.
type bundle struct {
	address string
	ask     bool  // each with ASKING before it
	at      []int // in the commands
}

// route groups the commands by server. A command whose slot nobody has gets its reply.
func (c *Conn) route(commands []wire.Command, replies []wire.Reply) []bundle {
	var all []bundle
	t := c.table.Load() // one for all, so that WAIT goes where the command before it goes
	for i := range commands {
		if address := t.addressOf(&commands[i]); address != "" {
			all = add(all, address, false, i)
		} else {
			replies[i].Err = errUncovered
			c.refresh()
		}
	}
	return all
}

// addressOf returns which server gets a command, or "" if nobody has its slot.
func (t *table) addressOf(command *wire.Command) string {
	switch {
	case command.Part != "":
		return command.Part
	case command.Key == "":
		return t.owners[0]
	}
	return t.of[slot.Of(command.Key)]
}

// errUncovered is as a server says it.
var errUncovered = &wire.ServerError{Text: "CLUSTERDOWN no server has the hash slot"}

func add(all []bundle, address string, ask bool, i int) []bundle {
	for j := range all {
		if all[j].address == address && all[j].ask == ask {
			all[j].at = append(all[j].at, i)
			return all
		}
	}
	return append(all, bundle{address, ask, []int{i}})
}

// send sends bundles, at the same time, and fills in the replies.
func (c *Conn) send(ctx context.Context, all []bundle, commands []wire.Command, replies []wire.Reply, by way) {
	if len(all) == 1 {
		c.sendOne(ctx, &all[0], commands, replies, by)
		return
	}
	var sent sync.WaitGroup
	for i := range all {
		sent.Go(func() { c.sendOne(ctx, &all[i], commands, replies, by) })
	}
	sent.Wait()
}

func (c *Conn) sendOne(ctx context.Context, b *bundle, commands []wire.Command, replies []wire.Reply, by way) {
	own, step := commands, 1
	if b.ask {
		step = 2
	}
	if len(b.at) < len(commands) || b.ask {
		own = make([]wire.Command, 0, step*len(b.at))
		for _, i := range b.at {
			if b.ask {
				own = append(own, wire.Command{Args: []string{"ASKING"}})
			}
			own = append(own, commands[i])
		}
	}
	got := c.exchange(ctx, b.address, own, by)
	for j, i := range b.at {
		replies[i] = got[step*j+step-1]
	}
}

// exchange sends commands to one server.
func (c *Conn) exchange(ctx context.Context, address string, commands []wire.Command, by way) []wire.Reply {
	n, err := c.node(address)
	if err != nil {
		return wire.Failed(len(commands), err)
	}
	replies := n.do(ctx, commands, by)
	for i := range replies {
		if _, refused := replies[i].Err.(*wire.ServerError); replies[i].Err != nil && !refused {
			c.refresh() // another server may have its slots now
			replies[i].Err = wire.InFailover(replies[i].Err)
		}
	}
	return replies
}

// again returns those commands that are to be sent again, and whether a slot of theirs is being moved. With
// a command goes the WAIT of its key: replicas of the server that has not carried it out know nothing of
// it.
func (c *Conn) again(sent []bundle, commands []wire.Command, replies []wire.Reply) (rest []bundle, moving bool) {
	for _, b := range sent {
		for _, i := range b.at {
			r := &replies[i]
			if to, ok := redirected(b.address, r); ok {
				rest = add(rest, to.address, to.ask, i)
				if !to.ask {
					c.moved(to)
				}
			} else if refused, ok := r.Err.(*wire.ServerError); ok && refused.Code() == "TRYAGAIN" {
				rest = add(rest, c.table.Load().addressOf(&commands[i]), false, i)
				moving = true
			}
		}
	}
	for b := range rest {
		rest[b].at = withWaits(rest[b].at, commands)
	}
	return rest, moving
}

// withWaits adds to some of the commands the WAITs of their keys, behind them.
func withWaits(at []int, commands []wire.Command) []int {
	n := len(at)
	for i := range commands {
		isWait := commands[i].Args[0] == "WAIT" && !slices.Contains(at, i)
		if isWait && slices.ContainsFunc(at[:n], func(j int) bool { return commands[j].Key == commands[i].Key }) {
			at = append(at, i)
		}
	}
	return at
}

// moved notes that a slot has another owner, and asks for all: others are likely to have moved too.
func (c *Conn) moved(to redirection) {
	for {
		t := c.table.Load()
		if t.of[to.slot] == to.address || c.table.CompareAndSwap(t, t.with(to.slot, to.address)) {
			break
		}
	}
	c.refresh()
}

// refreshEvery is the shortest time between two questions for the table.
const refreshEvery = 100 * time.Millisecond

// refresh asks for the table in the background, unless it has been asked for a moment ago.
func (c *Conn) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refreshing || c.closed {
		return
	}
	c.refreshing = true
	wait := refreshEvery - time.Since(c.refreshed)
	c.work.Go(func() {
		select {
		case <-time.After(wait):
		case <-c.alive.Done():
		}
		_ = c.learn(c.alive) // the next error asks again
		c.mu.Lock()
		c.refreshing, c.refreshed = false, time.Now()
		c.mu.Unlock()
	})
}

// learnWithin is how long one server is waited for when it is asked for the table.
const learnWithin = time.Second

// learn asks the servers that are known, in any order, and then the seeds, until one tells the table.
// Those that are silent come last.
func (c *Conn) learn(ctx context.Context) error {
	var ask []string
	if t := c.table.Load(); t != nil {
		ask = t.owners
	}
	ask = c.silentLast(slices.Concat(shuffled(ask), shuffled(c.o.Seeds)))
	var errs error
	for i, address := range ask {
		if slices.Contains(ask[:i], address) {
			continue
		}
		t, err := c.ask(ctx, address)
		if err == nil {
			c.table.Store(t)
			c.prune()
			return nil
		}
		if err = fmt.Errorf("%s: %w", address, err); errs == nil {
			errs = err
		} else {
			errs = fmt.Errorf("%w; %w", errs, err)
		}
	}
	return errs
}

// silentLast moves the servers behind the others that are known to be silent, and returns the list.
func (c *Conn) silentLast(list []string) []string {
	silent := func(address string) int {
		if c.silence(address) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(silent(a), silent(b)) })
	return list
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (c *Conn) ask(ctx context.Context, address string) (*table, error) {
	n, err := c.node(address)
	if err != nil {
		return nil, err
	}
	within := learnWithin
	if c.table.Load() == nil {
		within = openWithin // the first contact
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	reply := n.shared(ctx, []wire.Command{{Args: []string{"CLUSTER", "SLOTS"}}})[0]
	return parseTable(address, reply)
}

// Subscribe implements redislock.Conn. Each server of a cluster passes on what is published on any, so it
// subscribes at one that answers, and at another when that is lost.
func (c *Conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (session subscription.Session, err error) {
		for _, address := range c.silentLast(shuffled(c.table.Load().owners)) {
			if session, err = c.session(ctx, address, channel, false, deliver); err == nil {
				return session, nil
			}
		}
		return session, wire.InFailover(err)
	}, deliver)
}

// SubscribeShard implements redislock.Clustered.
func (c *Conn) SubscribeShard(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		address := c.Part(channel)
		if address == "" {
			c.refresh()
			return subscription.Session{}, errUncovered
		}
		session, err := c.session(ctx, address, channel, true, deliver)
		if to, moved := redirected(address, &wire.Reply{Err: err}); moved && !to.ask {
			c.moved(to)
		}
		return session, err
	}, deliver)
}

// session subscribes to a channel at a server.
func (c *Conn) session(
	ctx context.Context, address, channel string, sharded bool, deliver func(string),
) (session subscription.Session, err error) {
	n, err := c.node(address)
	if err == nil {
		session, err = n.server.Session(ctx, channel, sharded, deliver)
	}
	if err != nil {
		c.refresh()
	}
	return session, err
}

// Close implements redislock.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = nil
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	for _, n := range nodes {
		n.server.Close()
	}
	return nil
}
