// Package cluster is a client of a Redis Cluster, over clients of its servers.
//
// It sends each command to the server that has the key's slot, to all servers at the same time. It follows
// redirections: a command that a server has redirected was not carried out. It never sends a command again whose
// outcome is not known.
//
// While a slot is moved from one server to another, a script with several keys is refused (TRYAGAIN),
// until the move is over. Such commands are sent again until their context ends.
package cluster

import (
	"context"
	"errors"
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
	late  atomic.Int64 // requests under way that servers owe replies to for long

	mu         sync.Mutex
	reserves   bool             // each server has a connection for renewals and releases
	nodes      map[string]*node // by address
	refreshing bool
	refreshed  time.Time
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

// Outlived makes all connections anew: see wire.Server.
func (c *Conn) Outlived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.server.Outlived()
	}
}

// Parts implements redislock.Clustered.
func (c *Conn) Parts() []string { return slices.Clone(c.table.Load().owners) }

// Do implements redislock.Conn.
func (c *Conn) Do(ctx context.Context, commands []wire.Command) []wire.Reply {
	return c.do(ctx, commands, false)
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
		return c.do(ctx, commands, true)
	}
}

// What a command is sent again for, when it was not carried out, and for how long.
const (
	maxRedirections = 16
	firstPause      = 5 * time.Millisecond // doubles while a slot is moved
	longestPause    = 100 * time.Millisecond
	movesWithin     = 5 * time.Second // how long a command without a deadline waits for that
)

// do sends commands: those of each server in one pipeline, and to all servers at the same time. Reserved says that they
// go by the connections for renewals and releases.
func (c *Conn) do(ctx context.Context, commands []wire.Command, reserved bool) []wire.Reply {
	return c.split(ctx, commands, reserved, c.table.Load().addressOf) // one table, so that WAIT goes where its command goes (P1)
}

// split sends commands by groups, all at the same time.
func (c *Conn) split(ctx context.Context, commands []wire.Command, reserved bool, group func(*wire.Command) string) []wire.Reply {
	groups := map[string][]int{}
	if len(commands) > 1 {
		for i := range commands {
			of := group(&commands[i])
			groups[of] = append(groups[of], i)
		}
	}
	if len(groups) < 2 { // as most often
		return c.send(ctx, commands, reserved)
	}
	replies := make([]wire.Reply, len(commands))
	var all sync.WaitGroup
	for _, at := range groups {
		all.Go(func() { fill(replies, at, c.send(ctx, pick(commands, at), reserved)) })
	}
	all.Wait()
	return replies
}

// pick returns some of the commands.
func pick(commands []wire.Command, at []int) []wire.Command {
	some := make([]wire.Command, len(at))
	for j, i := range at {
		some[j] = commands[i]
	}
	return some
}

// fill puts replies to some of the commands among all.
func fill(replies []wire.Reply, at []int, some []wire.Reply) {
	for j, i := range at {
		replies[i] = some[j]
	}
}

// send sends commands to the server that the first one goes to, and again those that were not carried out: each key's
// by themselves.
func (c *Conn) send(ctx context.Context, commands []wire.Command, reserved bool) []wire.Reply {
	to := redirection{address: c.table.Load().addressOf(&commands[0])}
	replies := c.exchange(ctx, to, commands, reserved)
	began, moved := time.Now(), pause.Backoff{Min: firstPause, Max: longestPause}
	for hops := 0; hops <= maxRedirections; {
		at, next, moving := refused(to.address, commands, replies)
		if len(at) == 0 || moving && time.Since(began) >= movesWithin {
			break
		}
		if !next.ask && !moving {
			c.refresh() // other slots are likely to have moved too
		}
		if slices.ContainsFunc(at, func(i int) bool { return commands[i].Key != commands[at[0]].Key }) {
			fill(replies, at, c.split(ctx, pick(commands, at), reserved, func(one *wire.Command) string { return one.Key }))
			break
		}
		if moving {
			if !pause.Sleep(ctx, moved.Next()) {
				break // not carried out, and the replies say so
			}
			next = redirection{address: c.table.Load().addressOf(&commands[at[0]])}
		} else {
			hops++
		}
		to = next
		fill(replies, at, c.exchange(ctx, to, pick(commands, at), reserved))
	}
	return replies
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

// exchange sends commands to one server, each with ASKING before it if the redirection says so.
func (c *Conn) exchange(ctx context.Context, to redirection, commands []wire.Command, reserved bool) []wire.Reply {
	if to.address == "" {
		c.refresh()
		return wire.Failed(len(commands), errUncovered)
	}
	n, err := c.node(to.address)
	if err != nil {
		return wire.Failed(len(commands), err)
	}
	all := commands
	if to.ask {
		all = nil
		for _, command := range commands {
			all = append(all, wire.Command{Args: []string{"ASKING"}}, command)
		}
	}
	replies := c.request(ctx, n, all, reserved)
	for i := range commands {
		if to.ask {
			replies[i] = replies[2*i+1]
		}
		if _, refused := replies[i].Err.(*wire.ServerError); replies[i].Err != nil && !refused {
			c.refresh() // another server may have its slots now
			replies[i].Err = wire.InFailover(replies[i].Err)
		}
	}
	return replies[:len(commands)]
}

// refused returns which commands were not carried out, where they are redirected to, and whether their slot is being
// moved. With a command goes the WAIT of its key: replicas of the server that has refused it know nothing of it.
func refused(asked string, commands []wire.Command, replies []wire.Reply) (at []int, to redirection, moving bool) {
	for i := range replies {
		if next, ok := redirected(asked, &replies[i]); ok {
			at, to = append(at, i), next
		} else if r, ok := replies[i].Err.(*wire.ServerError); ok && r.Code() == "TRYAGAIN" {
			at, moving = append(at, i), true
		}
	}
	n := len(at)
	for i := range commands {
		same := func(j int) bool { return commands[j].Key == commands[i].Key }
		if n > 0 && commands[i].Args[0] == "WAIT" && slices.ContainsFunc(at[:n], same) {
			at = append(at, i)
		}
	}
	return at, to, moving
}

// refreshEvery is the shortest time between two questions for the table.
const refreshEvery = 100 * time.Millisecond

// refresh asks for the table in the background, unless it has been asked for a moment ago.
func (c *Conn) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refreshing || c.alive.Err() != nil {
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
func (c *Conn) learn(ctx context.Context) error {
	var ask []string
	if t := c.table.Load(); t != nil {
		ask = t.owners
	}
	ask = slices.Concat(shuffled(ask), shuffled(c.o.Seeds))
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
		errs = errors.Join(errs, fmt.Errorf("%s: %w", address, err))
	}
	return errs
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
	reply := n.server.Do(ctx, []wire.Command{{Args: []string{"CLUSTER", "SLOTS"}}})[0]
	return parseTable(address, reply)
}

// Subscribe implements redislock.Conn. Each server of a cluster passes on what is published on any, so it
// subscribes at one that answers, and at another when that is lost.
func (c *Conn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (session subscription.Session, err error) {
		for _, address := range shuffled(c.table.Load().owners) {
			var n *node
			if n, err = c.node(address); err == nil {
				session, err = n.server.Session(ctx, channel, deliver)
			}
			if err == nil {
				return session, nil
			}
			c.refresh()
		}
		return session, wire.InFailover(err)
	}, deliver)
}

// Close implements redislock.Conn.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.stop() // under the mutex: from now on no goroutine is begun, and no node made
	c.mu.Unlock()
	c.work.Wait()
	for _, n := range c.nodes {
		n.server.Close()
	}
	return nil
}
