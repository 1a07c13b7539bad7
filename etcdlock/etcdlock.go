// Package etcdlock keeps locks in etcd, version 3.4 or newer; before 3.4.38, 3.5.23
// and 3.6.5 etcd itself may end a lease too early, or say that it is kept alive when
// it has ended ("holdfast doctor" tells). Import it for its URL schemes, or give [New]
// a client of your own:
//
//	import _ "github.com/holdfastlock/holdfast/etcdlock"
//
//	locks, err := holdfast.Open(ctx, "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")
//
// The URL is etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, or etcds:// for TLS;
// a host without a port has 2379, and if any has a port the last one must. Parameters, all optional:
//
//	hf.layout  escaped or stock: see the constants
//	hf.ca      etcds: a file with the certificates to trust, instead of the system's
//	hf.cert    etcds: a file with the client's certificate, with hf.key
//	hf.key     etcds: a file with its private key
//
// The files are read again for each connection that is made.
//
// A hold, or a place in the queue, is a key; of a name's keys the one that was
// created first comes first, as in etcd's own concurrency package. The fencing token
// is the key's create revision: plain in the layout [Stock], in [Escaped] times 1,024 plus
// the number of times that the hold was handed over inside its process. Keys are on leases of etcd, one for all holds
// of a client whose TTLs need the same number of seconds, and a short one for
// places: one request keeps ten thousand holds alive. See the driver's Guarantees
// for what remains of its promises when things go wrong.
//
// A client opened by URL has two connections to each member: one for renewals and
// releases, and one for everything else. It has one stream on which it keeps its leases alive, and one
// of watches: with a password each connection and each stream costs the server a check of it.
package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/timer"
)

// Options configure a driver. The zero value is right for almost everybody.
type Options struct {
	// Prefix begins every key: 1 to 256 bytes, a name as driver.CheckName wants
	// it. Drivers with different prefixes are different stores, also where one prefix
	// goes on where the other ends; but in the layout Stock a prefix is no more than
	// the beginning of names, as it is to etcd's own locks: b/c with the prefix a is c
	// with the prefix a/b. "": DefaultPrefix, or in the layout Stock nothing.
	Prefix string
	// Layout is Escaped or Stock. "": Escaped.
	Layout string
	// Poll is Caps.Poll, at least 1 ms. 0: driver.DefaultPoll, or what it takes
	// for two polls to be a second longer than etcd's shortest lease: the place of
	// a client that has died stays for that lease, and up to a second more, or two if
	// driver.FarBehind others were before it when it was taken.
	Poll time.Duration
	// Clock is the clock that leases are trusted by. nil: driver.HostClock.
	Clock driver.Clock
	// Reserve is another client of the same etcd, for renewals and releases alone; it
	// stays the caller's. Without one they share the connections of the client that New
	// is given: if that has long answers or many requests under way for the rest of the
	// program, it may lose its leases. A store that is opened by its URL has its own.
	Reserve *clientv3.Client
}

// maxTTL is far below the longest lease of etcd, and long enough.
const maxTTL = 10 * 365 * 24 * time.Hour

// client is the driver over one client of etcd.
type client struct {
	etcd   *clientv3.Client
	own    bool // closed with the driver
	kv     clientv3.KV
	leases clientv3.Lease
	direct etcdserverpb.KVClient
	spare  atomic.Pointer[route] // for renewals and releases; nil: none yet
	clock  driver.Clock
	layout table.Layout
	caps   driver.Caps
	poll   time.Duration
	id     string

	minSeconds int64 // of etcd's shortest lease, which is also that of places

	hub        *hub
	timer      *timer.Timer
	life       context.Context // until Close
	die        context.CancelFunc
	background sync.WaitGroup

	mu         sync.Mutex
	isClosed   bool
	minimums   map[*record]*session // of holds with a minimum: see fixedFor
	sessions   map[int64]*session   // by seconds
	tombstones *session             // the lease of tombstones
	records    index
	places     map[*record]*place // of those that are queued
	firstN     int32              // the least number for new keys: those before may be there yet
	losses     chan driver.Loss
	breaks     *watch      // on what operators break; nil: none
	kept       *keepAlives // nil: no lease was kept alive yet
	followers  map[span]*follower
	wanted     map[string]int // followers of a name, by the beginning of its keys
	crowded    crowded
}

// New returns a driver over a client of etcd, which stays the caller's. It makes
// first contact. The client is used as it was connected: what was put in place of
// its fields KV, Lease or Watcher, a namespace say, is not used; set Options.Prefix
// instead. Nil options are fine.
func New(ctx context.Context, etcd *clientv3.Client, o *Options) (driver.Driver, error) {
	return connect(ctx, etcd, false, o)
}

func connect(ctx context.Context, etcd *clientv3.Client, own bool, o *Options) (*client, error) {
	if o == nil {
		o = &Options{}
	}
	l, err := table.NewLayout(o.Layout, o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Poll != 0 && o.Poll < time.Millisecond {
		return nil, fmt.Errorf("poll %v is too short: at least 1 ms", o.Poll)
	}
	c := &client{
		etcd: etcd, own: own, kv: requests{clientv3.NewKV(etcd)}, leases: leases{clientv3.NewLease(etcd)},
		direct: etcdserverpb.NewKVClient(etcd.ActiveConnection()),
		clock:  o.Clock, layout: l, id: rand.Text()[:table.ClientLen], hub: &hub{etcd: etcd},
		sessions: map[int64]*session{}, records: newIndex(), places: map[*record]*place{},
		minimums: map[*record]*session{}, followers: map[span]*follower{}, wanted: map[string]int{},
		losses: make(chan driver.Loss, 16),
	}
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	c.life, c.die = context.WithCancel(context.Background())
	if err := c.contact(ctx, o); err != nil {
		c.die()
		c.leases.Close()
		return nil, err
	}
	if o.Reserve != nil {
		o.Reserve.ActiveConnection().Connect()
		c.spare.Store(newRoute(o.Reserve))
	}
	c.timer = timer.New(c.clock, c.sweep)
	return c, nil
}

// contact learns the store's name and its shortest lease, by making one: that of
// places, as a rule.
func (c *client) contact(ctx context.Context, o *Options) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	get, err := c.ask(ctx)
	if err != nil {
		return err
	}
	sent := c.clock.Now()
	lease, err := c.leases.Grant(ctx, 1)
	switch {
	case err == nil:
		c.minSeconds = lease.TTL
	case errors.Is(err, rpctypes.ErrNoSpace):
		c.minSeconds = 2 // a store that is full can still be looked at; this is as it is set up by default
	default:
		return err
	}
	if err := c.layout.CheckRevision(get.Header.Revision); err != nil {
		return err
	}
	shortest := time.Duration(c.minSeconds) * time.Second
	if c.poll = o.Poll; c.poll == 0 {
		c.poll = max(driver.DefaultPoll, (shortest+time.Second)/2)
	}
	if lease != nil {
		c.sessions[lease.TTL] = &session{
			c: c, seconds: lease.TTL, busy: make(chan struct{}, 1), id: lease.ID, since: sent,
		}
	}
	kind := ""
	if c.layout.Stock {
		kind = "-stock"
	}
	c.caps = driver.Caps{
		Store: fmt.Sprintf("etcd%s:%x/%s", kind, get.Header.ClusterId, c.layout.LocksAt),
		Ops: driver.OpQueue | driver.OpNotify | driver.OpInspect | driver.OpBreak | driver.OpDowngrade |
			driver.OpAnnotate | driver.OpWatch,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, MaxTTL: maxTTL, Poll: c.poll, TokenBlock: c.layout.Block(),
		Guarantees: guarantees,
	}
	return nil
}

// ask is a client's first request. All later ones wait for a connection; this one fails
// once no member can be reached, and says why.
func (c *client) ask(ctx context.Context) (*clientv3.GetResponse, error) {
	var member peer.Peer
	resp, err := c.direct.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(c.layout.TombstonesAt), CountOnly: true},
		atOnce, grpc.Peer(&member))
	switch {
	case err == nil:
		return (*clientv3.GetResponse)(resp), nil
	case status.Code(err) == codes.Unavailable && member.Addr == nil: // no connection was made
		return nil, ended(ctx, err)
	}
	// A member has refused it, for example one that knows of no leader. The library asks the others.
	return c.kv.Get(ctx, c.layout.TombstonesAt, clientv3.WithCountOnly())
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// requestWithin bounds a request that has no deadline of its own.
const requestWithin = 5 * time.Second

// bounded is the context of one or a few requests: bounded in time and by the
// client's life, since the library repeats requests on a connection that is closed;
// and refused by a member that knows of no leader, so that another is asked.
func (c *client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(requireLeader(ctx), requestWithin)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// leaderOnly is what clientv3.WithRequireLeader adds to a request that has no metadata.
var leaderOnly = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// requireLeader is clientv3.WithRequireLeader.
func requireLeader(ctx context.Context) context.Context {
	if _, ok := metadata.FromOutgoingContext(ctx); ok {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, leaderOnly)
}

// alive returns why no request should be made.
func (c *client) alive(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return driver.ErrClosed
	}
	return ctx.Err()
}

// refused reports whether an error says that the store has certainly not done
// what was asked. Everything else may be done yet.
func refused(err error) bool {
	for _, certain := range []error{
		rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	} {
		if errors.Is(err, certain) {
			return true
		}
	}
	var etcd rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &etcd) {
		code = etcd.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	}
	return false
}

// Close implements driver.Driver. Leases on which nothing is left are ended at
// once, the others end with their TTL.
func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.losses)
	for _, f := range c.followers {
		if f.idle != nil {
			f.idle.Stop()
		}
	}
	used := map[*session]bool{}
	for r := range c.records.all() {
		used[r.session.Load()] = true
	}
	var idle []clientv3.LeaseID
	for _, s := range c.sessions {
		if !used[s] && s.id != 0 && !s.over && !s.ended(c.clock.Now()) {
			idle = append(idle, s.id)
		}
	}
	c.mu.Unlock()
	c.die()
	c.timer.Close()
	c.hub.close()
	c.background.Wait()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.Background()), closeWithin)
	defer cancel()
	for _, id := range idle {
		c.leases.Revoke(ctx, id) // a courtesy: without it they end a little later
	}
	err := c.leases.Close()
	if c.own {
		if l := c.spare.Load(); l != nil {
			l.etcd.Close() // its context has ended, and that is all that it says
		}
		err = errors.Join(err, c.etcd.Close())
	}
	return err
}

// closeWithin bounds the courtesies of Close.
const closeWithin = time.Second
