package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/core/timer"
)

// Options configure a driver. The zero value is right for almost everybody.
type Options struct {
	// Prefix begins every key: 1 to 256 bytes, a name as driver.CheckName wants it; in the layout Escaped no element
	// after the first is lock, gone or broken. There drivers with different prefixes are different stores. In the
	// layout Stock a prefix is no more than the beginning of names, as it is to etcd's own locks: b/c with the prefix
	// a is c with the prefix a/b. "": DefaultPrefix, or in the layout Stock nothing.
	Prefix string
	// Layout is Escaped or Stock. "": Escaped.
	Layout string
	// Poll is Caps.Poll, at least 1 ms. 0: driver.DefaultPoll, or what it takes for two polls to be a second longer
	// than etcd's shortest lease: the place of a client that has died stays for that lease, and up to a second more.
	Poll time.Duration
	// Clock is the clock that leases are trusted by. nil: driver.HostClock.
	Clock driver.Clock
	// Reserve is another client of the same etcd, for renewals and releases alone; it stays the caller's. Without one
	// they share the connections of the client that New is given: if that has long answers or many requests under way
	// for the rest of the program, it may lose its leases. A store that is opened by its URL has its own.
	Reserve *clientv3.Client
}

// maxTTL is far below the longest lease of etcd, and long enough.
const maxTTL = 10 * 365 * 24 * time.Hour

// client is the driver over one client of etcd.
type client struct {
	main   *route
	spare  *route // for renewals and releases; nil: none
	own    bool   // the clients of both are closed with the driver
	clock  driver.Clock
	layout table.Layout
	caps   driver.Caps
	id     string

	minSeconds int64 // of etcd's shortest lease, which is also that of places

	kept       keepAlives
	timer      *timer.Timer
	life       context.Context // until Close
	die        context.CancelFunc
	background sync.WaitGroup

	mu         sync.Mutex
	isClosed   bool
	sessions   map[int64]*session // by seconds
	tombstones *session           // the lease of tombstones
	records    index
	most       int   // how many names that has had
	firstN     int32 // the least number for new keys: those before may be there yet
	losses     chan driver.Loss
	watches    *watches               // nil: none yet, or their stream broke
	breaks     *watch                 // on what operators break; nil: none
	followers  map[string][]*follower // by what a name's keys begin with
}

// New returns a driver over a client of etcd, which stays the caller's. It makes first contact. The client is used as
// it was connected: what was put in place of its fields KV, Lease or Watcher, a namespace say, is not used; set
// Options.Prefix instead. Nil options are fine.
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
		main: newRoute(etcd), own: own, clock: o.Clock, layout: l, id: rand.Text()[:table.ClientLen],
		sessions: map[int64]*session{}, records: index{}, kept: keepAlives{busy: make(chan struct{}, 1)},
		followers: map[string][]*follower{}, losses: make(chan driver.Loss, 16),
	}
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	c.life, c.die = context.WithCancel(context.Background())
	if err := c.contact(ctx, o); err != nil {
		c.die()
		return nil, err
	}
	if o.Reserve != nil {
		o.Reserve.ActiveConnection().Connect()
		c.spare = newRoute(o.Reserve)
	}
	c.timer = timer.New(c.clock, c.sweep)
	return c, nil
}

// contact learns the store's name and its shortest lease, by making one: that of places, as a rule.
func (c *client) contact(ctx context.Context, o *Options) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	header, err := c.ask(ctx)
	if err != nil {
		return err
	}
	sent := c.clock.Now()
	lease, err := c.main.leases.Grant(ctx, 1)
	switch {
	case err == nil:
		c.minSeconds = lease.TTL
		c.sessions[lease.TTL] = c.newSession(lease.TTL)
		c.sessions[lease.TTL].id, c.sessions[lease.TTL].since = lease.ID, sent
	case errors.Is(err, rpctypes.ErrNoSpace):
		c.minSeconds = 2 // a store that is full can still be looked at; this is as it is set up by default
	default:
		return ended(ctx, err)
	}
	if err := c.layout.CheckRevision(header.Revision); err != nil {
		return err
	}
	shortest := time.Duration(c.minSeconds) * time.Second
	kind, poll := "", o.Poll
	if poll == 0 {
		poll = max(driver.DefaultPoll, (shortest+time.Second)/2)
	}
	if c.layout.Stock {
		kind = "-stock"
	}
	c.caps = driver.Caps{
		Store:   fmt.Sprintf("etcd%s:%x/%s", kind, header.ClusterId, c.layout.LocksAt),
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, MaxTTL: maxTTL, Poll: poll, TokenBlock: c.layout.Block(),
		Guarantees: guarantees,
	}
	return nil
}

// ask is a client's first request. All later ones wait for a connection; this one fails
// once no member can be reached, and says why.
func (c *client) ask(ctx context.Context) (*etcdserverpb.ResponseHeader, error) {
	var member peer.Peer
	first := &etcdserverpb.RangeRequest{Key: []byte(c.layout.TombstonesAt), CountOnly: true}
	resp, err := etcdserverpb.NewKVClient(c.main.etcd.ActiveConnection()).Range(ctx, first, atOnce, grpc.Peer(&member))
	if err != nil && status.Code(err) == codes.Unavailable && member.Addr == nil { // no connection was made
		return nil, ended(ctx, err)
	}
	if err != nil { // a member refuses it, for example one that knows of no leader: the library asks the others
		resp, err = c.main.get(ctx, first)
	}
	return resp.GetHeader(), err
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.caps }

// Close implements driver.Driver. Leases end with their TTL.
func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.losses)
	c.mu.Unlock()
	c.die()
	c.timer.Close()
	c.background.Wait()
	if !c.own {
		return nil
	}
	err := c.main.etcd.Close()
	if c.spare != nil {
		err = errors.Join(err, c.spare.etcd.Close())
	}
	return err
}
