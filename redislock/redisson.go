package redislock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
)

// redisson is the driver of the layout Redisson. Keys, values and messages are those of Redisson, so that
// programs in Java and this one exclude each other and wake each other. Beside them are only tombstones of
// requests that were withdrawn and of holds that were broken (P6), of which Java knows nothing.
//
// A request that is repeated finds its hold and does not enter it again. So an owner is in a hash once, and
// a release frees its hold whatever was repeated.
type redisson struct {
	*link
	mutex   *way       // what a mutex is
	publish string     // the command by which Redisson publishes on this deployment
	ears    *wire.Ears // hear of releases; nil: waiters poll
}

// wayOf returns how a request is on the wire, or ErrUnsupported if it cannot be.
func (r redisson) wayOf(req *driver.Request) (*way, error) {
	if req.MinHold > 0 || req.LockDelay > 0 {
		return nil, fmt.Errorf("%w: Redisson has no minimum holds and lock-delays", driver.ErrUnsupported)
	}
	if mutexOnly := r.mutex != lockWay; mutexOnly && (req.Mode != driver.Exclusive || req.RW) {
		return nil, driver.ErrUnsupported
	}
	switch {
	case req.Mode == driver.Slot:
		return permitWay, nil
	case req.Mode == driver.Shared:
		return readWay, nil
	case req.Mode == driver.Exclusive && req.RW:
		return writeWay, nil
	case req.Mode == driver.Exclusive:
		return r.mutex, nil
	}
	return nil, driver.ErrUnsupported
}

// maxToken is the highest token: all up to it are exact in JSON and Lua.
const maxToken = 1<<53 - 1

// certain marks a grant, as its Handle, of which the store has answered. Its token is 0, as that of a request
// without an answer, but its release needs no tombstone.
type certain struct{}

// redissonCaps are the abilities of a kind of the layout, of those of Redis.
func redissonCaps(caps driver.Caps, kind RedissonKind) driver.Caps {
	caps.Store += "-redisson"
	poll := setnxPoll
	switch kind {
	case RedissonFair:
		poll = driver.DefaultPoll
	case RedissonSpin:
		poll = longestSpin // its longest pause
	}
	caps.Shared, caps.Slots = kind == RedissonLock, kind == RedissonLock
	caps.Fencing, caps.Fair, caps.TokenBlock = kind == RedissonFenced, kind == RedissonFair, 0
	caps.NoNotes = true
	if caps.Poll == 0 {
		caps.Poll = poll
	}
	caps.Guarantees = redissonGuarantees(caps.Guarantees, kind)
	return caps
}

// newRedisson returns the driver of a kind.
func newRedisson(ctx context.Context, c *link, kind RedissonKind) (driver.Driver, error) {
	mutex := map[RedissonKind]*way{RedissonLock: lockWay, RedissonFair: fairWay, RedissonFenced: fencedWay, RedissonSpin: spinWay}[kind]
	r := redisson{link: c, mutex: mutex, publish: "PUBLISH"}
	if c.cluster {
		var err error
		if r.publish, err = wire.PublishInCluster(ctx, c.conn.Do); err != nil {
			return nil, err
		}
	}
	if kind != RedissonSpin {
		r.ears = wire.NewEars(c.conn)
		c.unsubscribe = r.ears.Close
	}
	if kind == RedissonFair {
		return fair{r, new(sync.Mutex), map[string]*fairWaiter{}}, nil
	}
	return r, nil
}

// Wakes implements driver.Waker, by all channels on which Redisson tells of a name, whatever its kind.
func (r redisson) Wakes(name string) driver.Wakes {
	if w := r.ears.Await(0, wire.LockChannel(name), wire.ReadWriteChannel(name), wire.SemaphoreChannel(name)); w != nil {
		return w
	}
	return nil
}

// checkName refuses names that Redisson handles wrongly, and those of Holdfast's own keys.
func (r redisson) checkName(name string) error {
	if err := r.layout.checkName(name); err != nil {
		return err
	}
	if r.cluster {
		return wire.CheckCluster(name)
	}
	return nil
}

// keys returns the keys of a request: see common.lua.
func (r redisson) keys(w *way, req *driver.Request) []string {
	owner := wire.Owner(req.Owner)
	if w == permitWay {
		owner = wire.PermitOwner(req.Owner)
	}
	return []string{
		req.Name, w.other(req.Name, owner), w.channel(req.Name), r.layout.redissonGone(req.Name, owner),
	}
}

// redissonGone returns the key of an owner's tombstone, which has the hash slot of the name. The owner is as it
// is on the wire: who breaks a hold knows no other.
func (l layout) redissonGone(name, owner string) string {
	return l.prefix + ":{" + slot.TagLike(name) + "}:gone:" + escape(owner)
}

// millis is a duration for the scripts, in milliseconds, rounded up: the server never keeps a hold for less
// than its holder trusts it.
func millis(d time.Duration) string {
	return decimal(int64((d + time.Millisecond - 1) / time.Millisecond))
}

// trust is for how long a hold counts after a grant or a renewal.
func (w *way) trust(ttl time.Duration) time.Duration {
	if w.longest > 0 {
		return min(ttl, w.longest)
	}
	return ttl
}

// Try implements driver.Driver.
func (r redisson) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return r.take(ctx, req, r.extra(&req)...)
}

// extra returns what the script needs beside the holder and the TTL, of a request that does not queue.
func (r redisson) extra(req *driver.Request) []string {
	if req.Mode == driver.Slot {
		return []string{decimal(int64(req.Slots)), r.publish}
	}
	return nil
}

// take takes a hold. Extra are the arguments of the kind's script behind the holder and the TTL.
func (r redisson) take(ctx context.Context, req driver.Request, extra ...string) (g driver.Grant, err error) {
	g.Request = req
	w, err := r.wayOf(&req)
	if err := cmp.Or(err, r.checkName(req.Name), r.alive(ctx)); err != nil {
		return g, err
	}
	keys := append(r.keys(w, &req), wire.FairTimeouts(req.Name))
	command := w.take.Command(keys, append([]string{w.holder(&req), millis(req.TTL)}, extra...)...)
	reply, sent, err := r.takeBy(ctx, w.take, command, req.TTL)
	if err != nil {
		return g, err
	}
	fields, _ := reply.Value.([]any)
	switch number(fields, 0) {
	case replyOK:
		token := driver.Token(0)
		if w == fencedWay {
			if token = driver.Token(number(fields, 1)); token <= 0 || token > maxToken {
				return g, driver.Uncertain(fmt.Errorf(
					"the counter %s is at %d: tokens are from 1 to %d", wire.Tokens(req.Name), token, int64(maxToken)))
			}
		}
		g.Token, g.Block, g.Since, g.Valid, g.Handle = token, 1, sent, w.trust(req.TTL), certain{}
		return r.counted(ctx, r, g, reply.short)
	case replyHeld:
		return g, &driver.HeldError{
			Name: req.Name, ExpiresIn: rest(number(fields, 1)), Ahead: int(max(number(fields, 2), 0)),
		}
	}
	return g, refusal(&req, reply.Value)
}

// each runs a script over grants, those of each kind in one batch and the batches at the same time, and
// returns an error or nil for each grant.
func (r redisson) each(
	ctx context.Context, to route, grants []driver.Grant, pick func(*way) *script, args func(*way, *driver.Grant) []string,
) []error {
	errs := make([]error, len(grants))
	at := map[*way][]int{}
	for i := range grants {
		req := grants[i].Request
		req.MinHold, req.LockDelay = 0, 0
		w, err := r.wayOf(&req)
		if errs[i] = cmp.Or(err, r.checkName(req.Name)); errs[i] == nil {
			at[w] = append(at[w], i)
		}
	}
	var batches sync.WaitGroup
	for w, places := range at {
		some := make([]driver.Grant, len(places))
		for n, i := range places {
			some[n] = grants[i]
		}
		batches.Go(func() {
			results := r.batch(ctx, to, pick(w), some,
				func(g *driver.Grant) []string { return r.keys(w, &g.Request) },
				func(g *driver.Grant) []string { return args(w, g) })
			for n, i := range places {
				errs[i] = results[n]
			}
		})
	}
	batches.Wait()
	return errs
}

// Renew implements driver.Driver.
func (r redisson) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := r.clock.Now()
	errs := r.each(ctx, r.renewing(grants), grants, func(w *way) *script { return w.renew }, func(w *way, g *driver.Grant) []string {
		return []string{w.holder(&g.Request), millis(g.TTL)}
	})
	all := renewals(grants, sent, errs)
	for i := range all {
		if all[i].Err == nil {
			w, _ := r.wayOf(&driver.Request{Mode: grants[i].Mode, RW: grants[i].RW})
			all[i].Valid = w.trust(all[i].Valid)
		}
	}
	return all
}

// Release implements driver.Driver.
func (r redisson) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := r.free(ctx, r.reserved, grants, replyNotHeld, func(g *driver.Grant) time.Duration {
		if _, ok := g.Handle.(certain); ok && !g.Stray {
			return 0
		}
		return max(g.TTL, withdrawnFor)
	})
	for i := range errs {
		if _, ok := grants[i].Handle.(certain); !ok && driver.Gone(errs[i]) {
			errs[i] = nil // a request that is withdrawn need not have been granted
		}
	}
	return errs
}

// free frees holds, and leaves tombstones with a status that last for a time.
func (r redisson) free(
	ctx context.Context, to route, grants []driver.Grant, status int64, refused func(*driver.Grant) time.Duration,
) []error {
	return r.each(ctx, to, grants, func(w *way) *script { return w.release }, func(w *way, g *driver.Grant) []string {
		args := []string{w.holder(&g.Request), r.publish, decimal(status), millis(refused(g))}
		if w == fairWay {
			args = append(args, millis(r.placeLife()), wire.LockChannel(g.Name))
		}
		return args
	})
}
