package redislock

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

// Redisson is that of Redisson, a client library of Java: programs in Go and in Java share locks, with each
// other's keys, channels and messages, of Redisson 3.52 and 4.7. docs/from-redisson.md says what is what there.
//
// These are the same, with these keys for the name N:
//
//	Redisson                   Go                              keys
//	RLock, non-reentrant       Mutex, hf.redisson=lock         hash N, channel redisson_lock__channel:{N}
//	RFairLock                  Mutex, hf.redisson=fair         hash N, list redisson_lock_queue:{N},
//	                                                           sorted set redisson_lock_timeout:{N},
//	                                                           channel redisson_lock__channel:{N}:OWNER
//	RFencedLock                Mutex, hf.redisson=fenced       as RLock, counter redisson_lock_token:{N}
//	RSpinLock                  Mutex, hf.redisson=spin         hash N
//	RReadWriteLock             RWMutex, Lease.Downgrade        hash N with mode, channel redisson_rwlock:{N},
//	                                                           string {N}:OWNER:rwlock_timeout:1 of a reader
//	RMultiLock                 holdfast.All                    those of each lock
//	RedissonRedLock            redlock://…?hf.layout=redisson&hf.durable=yes, hash N on each master
//	RPermitExpirableSemaphore  Client.Semaphore                string N, sorted set {N}:timeout,
//	                                                           channel redisson_sc:{N}
//	RSemaphore                 package redislock/redisson      string N, channel redisson_sc:{N}
//	RCountDownLatch            package redislock/redisson      string N, channel
//	                                                           redisson_countdownlatch__channel__{N}
//
// A name that has a { is not put into braces, but for the channel of a latch. An owner is a UUID and a number, as
// Redisson's are. The hash says 1 however often a lease is entered again (Lease.Reenter, Options.Reentrant), which the
// process counts. A client has one kind of mutex, because an RLock and an RFairLock have the same hash; only one whose
// mutexes are RLocks has read-write locks and semaphores.
//
// The keys of locks are their names, and do not begin with the prefix: names that do are refused. Waiters hear of
// releases by Redisson's channels if Dial has made the Conn to one server, and poll each 4 to 8 s (driver.ToldPoll)
// beside that; else they poll each 50 to 100 ms. Only a fair lock has a queue, and only a fenced one tokens; for the others
// Inspect shows a number by which Break names one hold, also one of Java's. There are no notes, lock-delays and
// minimum holds. Of a mutex, a read-write lock and a semaphore of one name only one can be in use: the others get
// driver.ErrMismatch, where Redisson grants several.
//
// A hold of a read-write lock is renewed each ten seconds at least, whatever its TTL, because a renewal in Java may
// shorten it to Redisson's lockWatchdogTimeout: see the driver's Guarantees.
//
// An ACL user needs all names as keys, the channels redisson_*, the keys that begin with the prefix, and the
// commands type, exists, hset, hget, hdel, hlen, hexists, hgetall, get, set, del, incrby, decrby, strlen,
// pttl, pexpire, time, zadd, zrem, zscore, zcard, zcount, zrange, zrangebyscore, lrange and eval, evalsha, scan,
// subscribe, unsubscribe and publish; for fair locks also lindex, lpop, lpush, llen, lpos, rpush and lrem, for
// fenced ones incr. holdfast doctor names what is missing.
const Redisson Layout = "redisson"

// RedissonKind is what a mutex is in the layout Redisson. All programs that use a name should have the same.
type RedissonKind string

// The kinds.
const (
	// RedissonLock is an RLock.
	RedissonLock RedissonKind = "lock"
	// RedissonFair is an RFairLock: waiters in Go and in Java are served in the order in which they came. All programs
	// in Go that use a name should have the same Options.Poll. The server needs the command LPOS, of Redis 6.0.6.
	RedissonFair RedissonKind = "fair"
	// RedissonFenced is an RFencedLock: tokens are the numbers of Redisson's counter. Its key has no end, so the server
	// keeps one for each name that was ever locked.
	RedissonFenced RedissonKind = "fenced"
	// RedissonSpin is an RSpinLock: waiters poll after pauses of up to 128 ms.
	RedissonSpin RedissonKind = "spin"
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
