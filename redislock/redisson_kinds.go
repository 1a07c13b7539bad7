package redislock

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// way is how one kind of hold is on the wire: its scripts, and what they need beside the name.
type way struct {
	take, renew, release *script
	other                func(name, owner string) string  // the second of its keys
	channel              func(name string) string         // the third
	holder               func(req *driver.Request) string // the hash's field, or the ids of permits
	// longest bounds the time for which a renewal is trusted: see longestTrust. 0: the TTL does alone.
	longest time.Duration
}

// longestTrust is how long, at most, a hold of a read-write lock is trusted without a renewal, so that it is
// renewed each ten seconds. A renewal by a reader in Java sets the TTL of the hash, of which all readers are fields,
// to Redisson's watchdog, which is 30 s. If that reader then dies, the hash ends that soon for ours too.
const longestTrust = 30 * time.Second

// redissonScript returns a script of the layout.
func redissonScript(files ...string) *script {
	text := lua("redisson/common")
	for _, file := range files {
		text += lua("redisson/" + file)
	}
	return scriptOf(text)
}

// nameItself is the second key of a kind that needs none.
func nameItself(name, _ string) string { return name }

func owner(req *driver.Request) string { return wire.Owner(req.Owner) }

// writerSuffix ends the field of a writer.
const writerSuffix = ":write"

func writer(req *driver.Request) string { return wire.Owner(req.Owner) + writerSuffix }

// lockWay is an RLock.
var lockWay = &way{
	take: redissonScript("lock_take"), renew: redissonScript("lock_renew"), release: redissonScript("lock_release"),
	other: nameItself, channel: wire.LockChannel, holder: owner,
}

// fencedWay is an RFencedLock: an RLock with a counter, of which each hold has the next number as its token.
var fencedWay = &way{
	take: lockWay.take, renew: lockWay.renew, release: lockWay.release,
	other:   func(name, _ string) string { return wire.Tokens(name) },
	channel: wire.LockChannel, holder: owner,
}

// spinWay is an RSpinLock: an RLock whose waiters hear of nothing, and poll. Its release is told all the same, so
// that waiters of an RLock of that name are woken.
var spinWay = &way{
	take: lockWay.take, renew: lockWay.renew, release: lockWay.release,
	other: nameItself, channel: wire.LockChannel, holder: owner,
}

// fairWay is an RFairLock. A place in its queue that is the first, and has ended, is removed by whoever looks next.
//
// A place of Redisson's lasts for five minutes, so that the others wait so long behind a client that has died
// as the first. One of ours lasts for two polls, and is confirmed once a poll. Waiters in Java shorten all places
// behind theirs when they get the lock, so a place behind them lasts longer by as much. When such a place is the
// first, whoever of ours looks next makes it two polls. If Java shortened it by more, it is removed when it is the
// first, and its owner goes back there.
var fairWay = &way{
	take: redissonScript("fair", "fair_take"), renew: lockWay.renew, release: redissonScript("fair", "fair_release"),
	other:   func(name, _ string) string { return wire.FairQueue(name) },
	channel: wire.FairTimeouts, // it is the third key; the channels are in the arguments
	holder:  owner,
}

// permitWay is an RPermitExpirableSemaphore. Its permits end by the wall clock: each client takes those for ended of
// which the clock that it reads says so.
var permitWay = &way{
	take:    redissonScript("permits", "permits_take"),
	renew:   redissonScript("permits", "permits_renew"),
	release: redissonScript("permits", "permits_release"),
	other:   func(name, _ string) string { return wire.PermitTimeouts(name) },
	channel: wire.SemaphoreChannel,
	holder:  func(req *driver.Request) string { return wire.PermitIDs(req.Owner, req.Permits) },
}

// readWay and writeWay are the halves of an RReadWriteLock. A read hold has a key of its own, which lasts as
// long as the hold may: without it a reader in Java that releases would take the hold for ended, and delete
// the hash.
var (
	readWay = &way{
		take: redissonScript("rw", "read_take"), renew: redissonScript("rw", "read_renew"), release: redissonScript("rw", "read_release"),
		other: wire.ReadTimeout, channel: wire.ReadWriteChannel, holder: owner, longest: longestTrust,
	}
	writeWay = &way{
		take: redissonScript("rw", "write_take"), renew: redissonScript("rw", "write_renew"), release: redissonScript("rw", "write_release"),
		other: wire.ReadTimeout, channel: wire.ReadWriteChannel, holder: writer, longest: longestTrust,
	}
	redissonDowngrade = redissonScript("rw", "downgrade")
)

// Downgrade implements driver.Downgrader, for the write half of a read-write lock. Redisson lets a thread do
// it in two steps: it takes the read half as well, and releases the write half. Waiting readers are told, which
// Redisson does not.
func (r redisson) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if r.mutex != lockWay || g.Mode == driver.Exclusive && !g.RW || g.Mode == driver.Slot {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if err := cmp.Or(r.checkName(g.Name), r.alive(ctx)); err != nil {
		return driver.Grant{}, err
	}
	sent := r.clock.Now()
	command := redissonDowngrade.Command(r.keys(readWay, &g.Request), owner(&g.Request), writer(&g.Request), millis(g.TTL), r.publish)
	reply := r.sharedAck.route(r.shared, g.TTL).run(ctx, redissonDowngrade, command)[0]
	if reply.Err != nil {
		return driver.Grant{}, Explain(reply.Err)
	}
	if err := cmp.Or(statusError(reply.Value), reply.short); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Claim = driver.Shared, sent, readWay.trust(g.TTL), false
	return g, nil
}
