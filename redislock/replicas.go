package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// With Options.Replicas, N, a grant or a renewal counts when N replicas have acknowledged it. So the
// command WAIT goes behind the script, on the same connection, because it covers what its own connection
// has written. What must be waited for, and what need not:
//
//   - A grant that Try or Enqueue returns, before its caller gets it. If too few acknowledge, the hold is
//     released, and nobody has ever trusted it.
//   - A renewal, and a downgrade, which starts the TTL again: a replica that does not know it lets the
//     hold end sooner than its holder believes.
//   - The hold of a winner out of the queue, which another client's release has granted, on a connection
//     of that client. The winner asks again by Enqueue, which renews the hold and waits: see
//     receiveGrant. What the release has written is before that in the stream that replicas follow.
//   - Not a release, a withdrawal or a break: a replica that does not know it keeps the name closed, for a
//     TTL at most.
//   - Not a place in the queue: after a fail-over a waiter takes one anew.
//   - Not the passing of a hold in a cohort, inside the process. The store has the hold of the same owner
//     before and after, with all tokens of its block used as far as it knows, so the next hold's token is
//     higher than all of them on each replica that has acknowledged the grant. The new holder trusts the
//     hold until the deadline of the last renewal that was acknowledged, as the one before did.

// MaxReplicas is the highest Options.Replicas.
const MaxReplicas = 100

// longestWait bounds the time for which the server waits for replicas. Meanwhile it carries out nothing
// else that comes on the same connection.
const longestWait = time.Second

// waitFor is how long the replicas have for something of that TTL: far less than it lasts, and than the time that
// is left until ctx ends, so that the server can still say that they are slow.
func waitFor(ctx context.Context, ttl time.Duration) time.Duration {
	within := min(ttl/5, longestWait)
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end)*9/10)
	}
	return max(within, time.Millisecond)
}

// mayWait returns an error if the server does not let this user wait for replicas.
func (c *link) mayWait(ctx context.Context) error {
	wait := Command{Args: []string{"WAIT", "0", "1"}, Key: c.layout.store()}
	return Explain(c.shared.do(ctx, []Command{wait})[0].Err)
}

// UnacknowledgedError says that too few replicas have acknowledged a grant, which was undone, or a
// renewal, which does not count: see Options.Replicas.
type UnacknowledgedError struct {
	Acknowledged int           // how many have
	Replicas     int           // how many have to: Options.Replicas
	Within       time.Duration // how long they had
}

// Error says how many have, and what to do.
func (e *UnacknowledgedError) Error() string {
	return fmt.Sprintf("%d of %d replicas acknowledged it within %v, too few for it to count: "+
		"see that as many are connected to the server and keep up with it, or ask for fewer by hf.replicas",
		e.Acknowledged, e.Replicas, e.Within)
}

// counted returns a grant, unless short says why it does not count: then d releases it, and short is
// returned. The release frees no other hold (P4). An undone acquire has no minimum hold.
//
// A release without an answer may arrive late. If the owner asked again, and were acknowledged, the release would end
// a hold that is trusted (P1). So the error is uncertain, and ErrNotHeld too: package holdfast withdraws the owner (P6),
// and asks under another.
func (c *link) counted(ctx context.Context, d driver.Driver, g driver.Grant, short error) (driver.Grant, error) {
	if short == nil {
		return g, nil
	}
	refused := driver.Grant{Request: g.Request}
	g.MinHold = 0
	if err := d.Release(ctx, []driver.Grant{g})[0]; err != nil && !driver.Gone(err) {
		return refused, driver.Uncertain(fmt.Errorf("%w: %w; it was released without an answer: %w", driver.ErrNotHeld, short, err))
	}
	return refused, short
}

// acknowledgers has an acknowledger for each server of a cluster, so that one that is dead holds up no
// requests to the others; else it has one.
type acknowledgers struct {
	c        *link
	send     route
	replicas int

	mu sync.Mutex
	of map[string]*acknowledger // by part
}

func newAcknowledgers(c *link, send route, replicas int) *acknowledgers {
	return &acknowledgers{c: c, send: send, replicas: replicas, of: map[string]*acknowledger{}}
}

// route returns the route for something of that TTL. Its answers say what replicas have not acknowledged.
// Without acknowledgers nothing need be, and the route is the plain one.
func (all *acknowledgers) route(plain route, ttl time.Duration) route {
	if all == nil {
		return plain
	}
	return func(ctx context.Context, commands []Command) []answer {
		part := all.c.part(commands[0].Key)
		all.mu.Lock()
		a := all.of[part]
		if a == nil {
			a = &acknowledger{acknowledgers: all}
			all.of[part] = a
		}
		all.mu.Unlock()
		return a.do(ctx, commands, waitFor(ctx, ttl))
	}
}

// acknowledger sends requests with a WAIT behind them, which those share that are sent together. A WAIT for each
// would cost as much as the script, and while replicas are slow each would hold up those behind it. So one
// exchange is under way at a time, and what comes meanwhile is sent together.
type acknowledger struct {
	*acknowledgers

	mu    sync.Mutex
	busy  bool // a goroutine sends
	queue []*parcel
}

// parcel is one call.
type parcel struct {
	commands []Command
	within   time.Duration
	answers  chan []answer // one value
}

func (a *acknowledger) do(ctx context.Context, commands []Command, within time.Duration) []answer {
	own := &parcel{commands, within, make(chan []answer, 1)}
	a.mu.Lock()
	a.queue = append(a.queue, own)
	if !a.busy {
		a.busy = true
		go a.work()
	}
	a.mu.Unlock()
	select {
	case answers := <-own.answers:
		return answers
	case <-ctx.Done():
		return slices.Repeat([]answer{{Reply: Reply{Err: ctx.Err()}}}, len(commands))
	}
}

// work sends what is queued until there is nothing left. An exchange ends when its replies are late by longestWait, so
// that the next one need not wait for a silent server (P2).
func (a *acknowledger) work() {
	for {
		a.mu.Lock()
		parcels := a.queue
		a.queue, a.busy = nil, len(parcels) > 0
		a.mu.Unlock()
		if len(parcels) == 0 {
			return
		}
		var commands []Command
		within := time.Duration(0)
		for _, p := range parcels {
			commands, within = append(commands, p.commands...), max(within, p.within)
		}
		ctx, cancel := context.WithTimeout(context.Background(), within+longestWait)
		answers := a.exchange(ctx, commands, within)
		cancel()
		for _, p := range parcels {
			n := len(p.commands)
			p.answers <- answers[:n:n]
			answers = answers[n:]
		}
	}
}

// exchange sends commands in one go, and behind them a WAIT for all of them; or for each key, which goes
// where the commands with that key go.
func (a *acknowledger) exchange(ctx context.Context, commands []Command, within time.Duration) []answer {
	n := len(commands)
	all, at, wait := commands, map[string]int{}, make([]int, n) // at: where the WAIT for a key is
	for i := range commands {
		key := ""
		if a.c.cluster { // which may redirect commands
			key = commands[i].Key
		}
		if _, ok := at[key]; !ok {
			at[key] = len(all)
			args := []string{"WAIT", strconv.Itoa(a.replicas), decimal(within.Milliseconds())}
			all = append(all, Command{Args: args, Key: commands[i].Key})
		}
		wait[i] = at[key]
	}
	answers := a.send.do(ctx, all)
	for i := range commands {
		answers[i].short = a.shortfall(&answers[wait[i]].Reply, within)
	}
	return answers[:n]
}

// shortfall returns why the reply to a WAIT does not say that enough replicas have acknowledged what was
// written.
func (a *acknowledger) shortfall(r *Reply, within time.Duration) error {
	n, ok := r.Value.(int64)
	switch {
	case r.Err != nil:
		return Explain(r.Err)
	case !ok:
		return errUnexpected(r.Value)
	case n < int64(a.replicas):
		return &UnacknowledgedError{Acknowledged: int(max(n, 0)), Replicas: a.replicas, Within: within}
	}
	return nil
}
