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
//
// and with TLS, where the server proves its name by a certificate that the system trusts:
//
//	hf.ca=FILE               trust these authorities instead, in PEM form
//	hf.cert=FILE&hf.key=FILE show this certificate, with this key, to the server
//
// The files are read again for each connection. Keys and channels begin with [DefaultPrefix]. The parameters
// hf.prefix, a prefix of names, and hf.ttl are package holdfast's, for every store.
//
// A client has three connections to each server: one for requests; one for renewals and releases, which
// therefore wait behind nothing else; and, in a cluster to one server only, one for the news of grants. A
// program that wants its own client of Redis used wraps it instead: see packages goredisconn and rueidisconn,
// and [New].
//
// Each name has a record of its last token and its holds. If somebody waits for it, it also has a
// queue, and an entry for each place there; if a request was withdrawn or a hold was broken, a
// tombstone for each. These are five keys at most, with one hash tag; scripts declare all that they
// use. They change the state in one step, by the server's clock. In the same step a release hands
// the name over to the first waiter, and publishes the news on the channel of the waiter's client:
// each client has one. A lock that nobody else wants costs a short script and one plain command.
//
// A waiting client confirms its place about once a second, which writes its own entry only, and a
// hand-over touches the first places only, however many wait. A place is about 250 bytes.
//
// An ACL user needs the keys and channels that begin with the prefix, and these
// commands:
//
//	ACL SETUSER app on >PASSWORD ~holdfast:* &holdfast:* +ping +select
//		+eval +evalsha +subscribe +publish +pubsub|numsub +time +scan +get +set
//		+zadd +zrem +zrange +zrank +zscore +zcard +hset +hget +hdel +pexpire
//
// With sentinels the user needs +role too, in a cluster +cluster|slots and +asking, and with Options.Replicas
// +wait.
//
// The server may refuse a request: it loads its data, is a replica, is full, cannot write to its
// disk, runs a long script of another client … An Acquire that waits asks again; one that has not
// had an answer yet returns the refusal at once, with what to do about it; a renewal that is refused
// leaves the lease in doubt until its trust deadline. A server whose memory is full grants nothing
// new, but goes on to renew and release.
//
// The store is one server, a primary that sentinels name, or a cluster, where each name is on the master
// of its hash slot. A replica that takes over may not know what the primary
// acknowledged, unless Options.Replicas says that it must: see the driver's Guarantees.
package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/record"
)

// DefaultPrefix is what keys and channels begin with.
const DefaultPrefix = "holdfast"

// tokenBlock is driver.Caps.TokenBlock.
const tokenBlock = 4096

// maxPrefix is the length of the longest prefix, in bytes.
const maxPrefix = 128

// maxTTL keeps the sum of the server's clock, a TTL and a lock-delay exact in Lua.
const maxTTL = 10 * 365 * 24 * time.Hour

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
// The keys of locks do not begin with the prefix: names that do are refused. A program whose data are at a lock's name has the
// lock, as long as the data are there; if they are no string, the error is driver.ErrMismatch. Holdfast
// never changes or deletes what another has written.
const SetNX Layout = "setnx"

// Redisson is that of Redisson, a client library of Java: programs in Go and in Java share locks, with each
// other's keys, channels and messages, of Redisson 3.52 and 4.7.
//
//	Redisson                    here
//	RLock                       Mutex
//	RFairLock                   Mutex, with Options.Redisson RedissonFair
//	RFencedLock                 Mutex, with RedissonFenced
//	RSpinLock                   Mutex, with RedissonSpin
//	RReadWriteLock              RWMutex, with Downgrade
//	RPermitExpirableSemaphore   Semaphore
//
// Only a client whose mutexes are RLocks has the last two. RSemaphore and RCountDownLatch, which nobody holds,
// are in package redislock/redisson.
//
// The keys of locks are their names, and do not begin with the prefix: names that do are refused. Who waits hears of releases by
// Redisson's channels if Dial has made the Conn, and polls each half to whole second beside that. Only a fair
// lock has a queue, and only a fenced one tokens; for the others Inspect shows a number by which Break names
// one hold, also one of Java's. There are no notes, lock-delays and minimum holds. Of a mutex, a read-write
// lock and a semaphore of one name only one can be in use: the others get driver.ErrMismatch, where Redisson
// grants several. A semaphore is made by whoever takes permits first, and stays as it was made, until somebody
// deletes its key. In a cluster, names with braces that Redisson handles wrongly are refused: those of which
// its keys have several hash slots.
//
// A hold of Redisson's has a TTL of 30 s, which is renewed each ten seconds: use the same (the URL parameter
// hf.ttl) if holders should look alike. A hold of a read-write lock is renewed each ten seconds at least,
// whatever its TTL, because a renewal in Java may shorten it to Redisson's lockWatchdogTimeout. Where that is
// set to less than 30 s, readers may lose their holds before they notice: see the driver's Guarantees.
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
	// RedissonFair is an RFairLock: waiters in Go and in Java are served in the order in which they came. The
	// queue runs by the server's wall clock for Go, and by their hosts' for programs in Java. A waiter in Go that has
	// died as the first is passed over after two seconds, one in Java after five minutes. All programs in Go that use a name should have the
	// same Options.Poll. The server needs the command LPOS, of Redis 6.0.6.
	RedissonFair RedissonKind = "fair"
	// RedissonFenced is an RFencedLock: tokens are the numbers of Redisson's counter, which no name ever loses,
	// so that the server keeps a key for each name that was ever locked. A token is lost, and tokens begin
	// again, if the server forgets the counter.
	RedissonFenced RedissonKind = "fenced"
	// RedissonSpin is an RSpinLock: waiters poll after pauses of up to 128 ms.
	RedissonSpin RedissonKind = "spin"
)

// client is the driver over one Conn.
type client struct {
	conn        Conn
	shared      route // for everything but renewals and releases
	reserved    route // for renewals and releases
	clock       driver.Clock
	caps        driver.Caps
	layout      layout
	cluster     bool   // the servers are a cluster
	votes       bool   // it is one server, so it can be a node of a quorum
	id          string // names the channel of hand-overs and losses
	unsubscribe func()
	contention  contention
	longest     atomic.Int64 // the longest TTL that Life has returned, in nanoseconds
	wakeups     *wakeups     // nil: the server does not tell when names are free, or the layout has a queue

	// These send what replicas must acknowledge, by the routes of those names. nil: nothing need be.
	sharedAck, reservedAck *acknowledgers

	mu      sync.Mutex
	waiters map[string]*waiter // by owner
	undone  record.Tombstones  // owners whose grants are being undone: see counted
	losses  chan driver.Loss
	closed  chan struct{}
}

// elsewhere begins the name of a client of a cluster. Its subscription may be at another server than the
// lock, which then cannot tell whether anybody is subscribed. If a script took such a client for dead, the hold
// that the client was told of would be granted to another (P1).
const elsewhere = "~"

// answer is the reply to a command, and says why what the command has written does not count: too few replicas
// have acknowledged it. Short is nil for commands that need not be acknowledged.
type answer struct {
	Reply
	short error
}

// route is a way to the server.
type route func(ctx context.Context, commands []Command) []answer

// plainRoute is that of Conn.Do, or another function like it.
func plainRoute(do func(context.Context, []Command) []Reply) route {
	return func(ctx context.Context, commands []Command) []answer {
		answers := make([]answer, len(commands))
		for i, r := range do(ctx, commands) {
			answers[i].Reply = r
		}
		return answers
	}
}

// do sends commands. If ctx ends before the replies come, the errors satisfy errors.Is with ctx's
// own (P11).
func (l route) do(ctx context.Context, commands []Command) []answer {
	if len(commands) == 0 {
		return nil
	}
	answers := l(ctx, commands)
	for i := range answers {
		if err := answers[i].Err; err != nil && !isRefusal(err) {
			answers[i].Err = ctxerr.Of(ctx, err)
		}
	}
	return answers
}

// New returns a driver over a connection, which it closes when it is closed, and
// also when New fails. It makes first contact: it subscribes to the client's
// channel and reads which store this is. Nil options are fine.
func New(ctx context.Context, conn Conn, o *Options) (driver.Driver, error) {
	c, err := connect(ctx, conn, o)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if o == nil || o.Layout == "" {
		return c, nil
	}
	if o.Layout == SetNX {
		return setnx{lives{c}}, nil
	}
	d, err := newRedisson(ctx, c, cmp.Or(o.Redisson, RedissonLock))
	if err != nil {
		return nil, errors.Join(Explain(ctxerr.Of(ctx, err)), c.Close())
	}
	return d, nil
}

// Check returns what is wrong with the options, or nil. New checks them too; who makes the Conn can do so before.
func (o *Options) Check() error {
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
	return checkPrefix(cmp.Or(o.Prefix, DefaultPrefix))
}

func connect(ctx context.Context, conn Conn, o *Options) (*client, error) {
	if o == nil {
		o = &Options{}
	}
	c := &client{
		conn: conn, clock: o.Clock, layout: layout{o.Prefix},
		unsubscribe: func() {},
		waiters:     map[string]*waiter{}, losses: make(chan driver.Loss, 16), closed: make(chan struct{}),
	}
	c.shared = plainRoute(conn.Do)
	c.reserved = c.shared
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	if c.layout.prefix == "" {
		c.layout.prefix = DefaultPrefix
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	id, err := c.identity(ctx)
	if err != nil {
		return nil, err
	}
	if o.Replicas > 0 {
		if err := c.mayWait(ctx); err != nil {
			return nil, err
		}
	}
	if r, ok := conn.(reserver); ok {
		c.reserved = plainRoute(r.Reserve())
	}
	if o.Replicas > 0 {
		c.sharedAck = newAcknowledgers(c, c.shared, o.Replicas)
		c.reservedAck = newAcknowledgers(c, c.reserved, o.Replicas)
	}
	c.caps = driver.Caps{
		Store:   "redis:" + id,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: time.Millisecond, MaxTTL: maxTTL, Poll: o.Poll, TokenBlock: tokenBlock,
		Guarantees: guaranteesOf(deploymentOf(conn)),
	}
	c.votes = deploymentOf(conn) == oneServer && o.Replicas == 0
	c.cluster = deploymentOf(conn) == clustered
	switch o.Layout {
	case SetNX:
		c.caps = setnxCaps(c.caps)
	case Redisson:
		c.caps = redissonCaps(c.caps, cmp.Or(o.Redisson, RedissonLock))
	}
	if o.Replicas > 0 {
		c.caps.Guarantees = acknowledged(c.caps.Guarantees, o.Replicas)
	}
	if o.Layout != "" {
		return c, nil // of Redisson newRedisson does the rest
	}
	c.id = rand.Text()[:16]
	if c.cluster {
		c.id = elsewhere + c.id
	}
	c.unsubscribe, err = conn.Subscribe(ctx, c.layout.channel(c.id), c.receive)
	return c, Explain(ctxerr.Of(ctx, err))
}

// identity returns the random name of the store, which its first client chooses. The server's
// address would not do, because it depends on the way to the server, nor its run id, which is new
// after each start. When the server's data were wiped, the next client chooses a new name: see the
// guarantees.
func (c *client) identity(ctx context.Context) (string, error) {
	key := c.layout.store()
	replies := c.shared.do(ctx, []Command{
		{Key: key, Args: []string{"SET", key, rand.Text(), "NX"}},
		{Key: key, Args: []string{"GET", key}},
	})
	for _, r := range replies {
		if r.Err != nil {
			return "", Explain(r.Err)
		}
	}
	id, ok := replies[1].Value.(string)
	if !ok {
		return "", fmt.Errorf("key %s has no text: another program uses it", key)
	}
	return id, nil
}

func checkPrefix(prefix string) error {
	bad := strings.IndexFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '}' })
	if bad >= 0 || len(prefix) > maxPrefix {
		return fmt.Errorf("prefix %.40q: 1 to %d bytes of printable ASCII without space, { and } are allowed", prefix, maxPrefix)
	}
	return nil
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// alive returns an error if the client is closed or ctx has ended.
func (c *client) alive(ctx context.Context) error {
	select {
	case <-c.closed:
		return driver.ErrClosed
	default:
		return ctx.Err()
	}
}

// Close implements driver.Driver.
func (c *client) Close() error {
	c.mu.Lock()
	if c.alive(context.Background()) != nil {
		c.mu.Unlock()
		return driver.ErrClosed
	}
	close(c.closed)
	close(c.losses)
	c.mu.Unlock()
	c.unsubscribe()
	return c.conn.Close()
}
