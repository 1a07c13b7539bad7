// Package redislock keeps locks in Redis, or in a server that speaks its
// protocol and runs its Lua scripts. It has a client of its own, and registers these URL schemes:
//
//	redis://user:password@host:6379/0
//	redis+unix://user:password@/run/redis/redis.sock?hf.db=0
//	redis+sentinel://user:password@host:26379,host:26379,host:26379/primary/0
//	redis+cluster://user:password@host:6379,host:6379,host:6379
//	redlock://host:6379,host:6379,host:6379        (see package quorum)
//
// and with TLS rediss, rediss+sentinel and rediss+cluster. Behind redis+sentinel are the hosts of the
// sentinels, and the name by which they know the primary; user and password are those of the servers,
// and of the sentinels if they want one. Behind redis+cluster are some servers of the cluster.
//
// The database is 0 if none is given, the port 6379. These parameters are of [Options]:
//
//	hf.layout=setnx  one string for each lock, as programs in all languages write it
//	hf.layout=redisson  locks that Go and Java share, on the keys of Redisson; a mutex is an RLock, or
//	                    with hf.redisson=fair, fenced or spin an RFairLock, RFencedLock or RSpinLock
//	hf.replicas=N    a grant or a renewal counts when N replicas have acknowledged it
//	hf.maxttl=30s    the longest TTL, and how long a server that may have forgotten holds grants nothing
//	hf.forget=go     such a server grants at once
//
// and with TLS, where the server proves its name by a certificate that the system trusts:
//
//	hf.ca=FILE               trust these authorities instead, in PEM form
//	hf.cert=FILE&hf.key=FILE show this certificate, with this key, to the server
//
// The files are read again for each connection. Keys and channels begin with [DefaultPrefix].
//
// A client has three connections to each server: one for requests; one for renewals and releases, which
// therefore wait behind nothing else; and, in a cluster to one server only, one for the news of grants. A
// program that wants its own client of Redis used wraps it instead: see packages goredisconn and rueidisconn,
// and [New].
//
// Each name has a record of its last token and its holds; if somebody waits for it, a queue, and an entry for each
// place there; and tombstones of requests that were withdrawn and of holds that were broken. These are five keys at
// most, with one hash tag. Scripts change them in one step, by the server's clock. In the same step a release hands
// the name over to the first waiter, and publishes the news on the channel of the waiter's client. A lock that nobody
// else wants costs a short script and one plain command.
//
// docs/stores/redis.md says which rights a user needs, and what the store can lose; so do the driver's Guarantees.
//
// The server may refuse a request: it loads its data, is a replica, is full, cannot write to its
// disk, runs a long script of another client … An Acquire that waits asks again; one that has not
// had an answer yet returns the refusal at once, with what to do about it; a renewal that is refused
// leaves the lease in doubt until its trust deadline. A server whose memory is full grants nothing
// new, but goes on to renew and release.
package redislock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
)

// DefaultPrefix is what keys and channels begin with.
const DefaultPrefix = "holdfast"

// Options configure a driver. The zero value is right for almost everybody.
type Options struct {
	// Prefix begins every key and channel, before a colon: 1 to 128 bytes of
	// printable ASCII without space, { and }. Drivers with different prefixes
	// are different stores. "": DefaultPrefix.
	Prefix string
	// Poll is Caps.Poll, at least 1 ms. 0: driver.DefaultPoll.
	Poll time.Duration
	// Layout is how locks are kept. "": that of Holdfast alone, with all that Holdfast can do.
	Layout Layout
	// Redisson is what a mutex is in the layout Redisson. "": RedissonLock.
	Redisson RedissonKind
	// Replicas is how many replicas must acknowledge a grant or a renewal before it counts, 0 to [MaxReplicas].
	// A grant that fewer acknowledge within a fifth of its TTL, or a second if that is less, is undone;
	// a renewal does not extend the lease. The error is an *UnacknowledgedError.
	//
	// A fail-over then forgets no hold, if a replica that has acknowledged it takes over, and its clock
	// agrees: see the driver's Guarantees. All clients of a name should ask for as many. The user needs
	// the command WAIT. While replicas are slow, so are all requests of the client.
	Replicas int
	// MaxTTL is the longest TTL, with its lock-delay, at least 1 ms; longer ones are refused. A server that was started,
	// flushed, or has taken over from another may have forgotten holds, so it grants nothing for so long, and a hundredth
	// more. All clients should have the same. 0: 30 s. The layout Redisson does not have the rule.
	MaxTTL time.Duration
	// Forget lets such a server grant at once, so that it may grant what another client still holds. It is for locks
	// that save work and protect nothing, and for tests.
	Forget bool
	// Clock is the clock that leases are trusted by. nil: driver.HostClock.
	Clock driver.Clock
}

// Layout is how locks are kept.
type Layout string

// SetNX is the lock that programs in all languages write first: a string at the bare name, taken by
//
//	SET NAME VALUE NX PX MILLISECONDS
//
// and released and extended by a script that compares the value first. Holdfast and they exclude each
// other. It has exclusive holds only, and no queue: waiters poll every 50 to 100 ms. Tokens grow among
// Holdfast's holders only, so Caps.Fencing is false: a stale holder of another program has no token that a
// guard could refuse. Notes, tokens and what else the string cannot carry are in keys of their own under the
// prefix.
//
// The keys of locks do not begin with the prefix: names that do are refused. While other data are at a lock's name
// the lock is taken; if they are no string, the error is driver.ErrMismatch. Holdfast never changes or deletes what
// another has written.
const SetNX Layout = "setnx"

// maxPrefix is the length of the longest prefix, in bytes.
const maxPrefix = 128

// check returns what is wrong with the options, or nil.
func (o *Options) check() error {
	kinds := []RedissonKind{"", RedissonLock, RedissonFair, RedissonFenced, RedissonSpin}
	switch {
	case o.Poll != 0 && o.Poll < time.Millisecond:
		return fmt.Errorf("poll %v is too short: at least 1 ms", o.Poll)
	case o.Layout != "" && o.Layout != SetNX && o.Layout != Redisson:
		return fmt.Errorf("layout %.40q: %s and %s are known, or none", o.Layout, SetNX, Redisson)
	case o.Layout != Redisson && o.Redisson != "":
		return fmt.Errorf("redisson %.40q is for the layout %s", o.Redisson, Redisson)
	case !slices.Contains(kinds, o.Redisson):
		return fmt.Errorf("redisson %.40q: %s, %s, %s and %s are known", o.Redisson, RedissonLock, RedissonFair, RedissonFenced, RedissonSpin)
	case o.Replicas < 0 || o.Replicas > MaxReplicas:
		return fmt.Errorf("%d replicas: 0 to %d can be asked for", o.Replicas, MaxReplicas)
	}
	bad := strings.IndexFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' })
	if bad >= 0 || len(o.Prefix) > maxPrefix {
		return fmt.Errorf("prefix %.40q: 1 to %d bytes of printable ASCII without space, { and } are allowed", o.Prefix, maxPrefix)
	}
	return life.Check(o.MaxTTL, o.Forget || o.Layout == Redisson)
}
