package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/core/timer"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// ErrNoQuorum says that servers of the ensemble answer and none of them serves: a majority is not there, or
// they elect a leader, which takes seconds. The error that has it says what each server said.
var ErrNoQuorum = zk.ErrNoQuorum

// ErrHungUp says that a server ended the connection in place of an answer: it has too many of this host
// (maxClientCnxns), or does not serve yet. New waits for it, for five seconds at most.
var ErrHungUp = zk.ErrHungUp

// Config configures a driver. Only Servers is needed.
type Config struct {
	// Servers are the ensemble's servers, as host:port; at least one.
	Servers []string
	// Prefix begins every path: elements with slashes between them, "app/locks". "": none.
	Prefix string
	// Dial connects to one of Servers. It MUST lead to the same server whenever it gets the same
	// address. nil: by TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS, if not nil, returns what each connection uses. An empty ServerName stands for the server's host.
	TLS func() *tls.Config
	// User and Password authenticate by the scheme digest. "": nobody.
	User, Password string
	// Open makes nodes that everybody may change, although there is a User. Otherwise only that user
	// may read, make and delete the nodes that this client makes; without a User everybody may.
	Open bool
	// Leader makes mutexes those of Curator's leader elections: see the constants. "": they are locks.
	Leader string
	// Poll is Caps.Poll, at least 1 ms. 0: what it takes for two polls to be as long as the server's
	// longest session, because the place of a client that has died stays for its session.
	Poll time.Duration
	// Retry says how often, and until when, an acquire goes on after a lost connection: see the URL's hf.retry.
	// "": "exponential:50ms:5".
	Retry string
	// OnRevoke is called when somebody asks for a lock that this client holds: see Revoke. It gets the
	// name, and the token of the hold. It MUST NOT block. nil: nobody is told.
	OnRevoke func(name string, token driver.Token)
	// Clock is the clock that holds are trusted by. nil: driver.HostClock.
	Clock driver.Clock
}

// The values of Config.Leader, and of the URL's hf.leader.
const (
	// Latch makes a mutex an entry of Curator's LeaderLatch.
	Latch = "latch"
	// Selector makes a mutex an entry of Curator's LeaderSelector, which is an InterProcessMutex.
	Selector = "selector"
)

func init() {
	driver.Register("zk", open)
	driver.Register(schemeWithTLS, open)
}

const (
	schemeWithTLS = "zks"
	defaultPort   = "2181"
)

// open opens the driver for a URL.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	config, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	d, err := New(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	return d, nil
}

// ParseURL returns the Config that a store URL stands for. Its errors show nothing of user and password.
func ParseURL(u *url.URL) (Config, error) {
	known := []string{"hf.leader", "hf.acl", "hf.retry"}
	secure := u.Scheme == schemeWithTLS
	if secure {
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return Config{}, err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return Config{}, errors.New("store URL is malformed: it looks like zk://host:2181,host:2181/prefix")
	}
	config := Config{Prefix: strings.Trim(u.Path, "/"), Leader: params["hf.leader"], Retry: params["hf.retry"]}
	if u.User != nil {
		config.User = u.User.Username()
		config.Password, _ = u.User.Password()
		if config.User == "" || strings.Contains(config.User, ":") {
			return Config{}, errors.New("the user of the store URL is empty or has a colon, which ZooKeeper's digest cannot have")
		}
	}
	switch acl := params["hf.acl"]; {
	case acl == "open" && config.User != "":
		config.Open = true
	case acl != "" && acl != "creator" && acl != "open":
		return Config{}, fmt.Errorf("hf.acl is %.40q: open or creator is right", acl)
	case acl == "creator" && config.User == "":
		return Config{}, errors.New("hf.acl=creator needs a user: zk://user:password@host")
	}
	if config.Servers, err = storeurl.Hosts(u.Host, defaultPort); err != nil {
		return Config{}, err
	}
	if secure {
		source, err := certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]})
		if err != nil {
			return Config{}, err
		}
		config.TLS = source.Config
	}
	return config, nil
}

// New returns a driver. It makes first contact, and learns the server's bounds of sessions.
func New(ctx context.Context, config Config) (driver.Driver, error) {
	l, err := newLayout(config.Prefix, config.Leader == Latch)
	switch {
	case err != nil:
		return nil, err
	case len(config.Servers) == 0:
		return nil, errors.New("no servers: at least one host:port is needed")
	case config.Poll != 0 && config.Poll < time.Millisecond:
		return nil, fmt.Errorf("poll %v is too short: at least 1 ms", config.Poll)
	case config.Leader != "" && config.Leader != Latch && config.Leader != Selector:
		return nil, fmt.Errorf("hf.leader is %.40q: %q or %q is right", config.Leader, Latch, Selector)
	case config.User == "" && config.Password != "":
		return nil, errors.New("a password without a user")
	}
	policy, err := parseRetry(cmp.Or(config.Retry, defaultRetry))
	if err != nil {
		return nil, fmt.Errorf("hf.retry: %w", err)
	}
	if config.Clock == nil {
		config.Clock = driver.HostClock
	}
	c := &client{
		wire:   zk.Config{Servers: slices.Clone(config.Servers), Dial: config.Dial, TLS: config.TLS, Clock: config.Clock},
		retry:  policy,
		layout: l, clock: config.Clock, onRevoke: config.OnRevoke,
		keepers: map[time.Duration]*keeper{}, owners: map[ownerKey]*owner{}, dirs: map[string]bool{}, losses: make(chan driver.Loss, 16),
	}
	if config.User != "" {
		c.wire.Auth = []zk.Auth{{Scheme: "digest", Credentials: config.User + ":" + config.Password}}
		if !config.Open {
			c.acl = zk.CreatorACL()
		}
	}
	c.life, c.die = context.WithCancel(context.Background())
	c.timer = timer.New(c.clock, c.sweep)
	if err := c.contact(ctx, config.Poll); err != nil {
		c.die()
		c.timer.Close()
		return nil, &driver.OpenError{Err: err}
	}
	return c, nil
}

// contact learns the store's name and its bounds of sessions, by opening a session that is as short as
// it can be, and one that is as long.
func (c *client) contact(ctx context.Context, poll time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	probe := func(timeout time.Duration) (*zk.Session, error) {
		config := c.wire
		config.Timeout = timeout
		return zk.Open(ctx, config)
	}
	const longest = 2 * time.Minute // that is asked for
	long, err := probe(longest)
	if errors.Is(err, zk.ErrNoLeader) {
		c.wire.Leaderless = true
		long, err = probe(longest)
	}
	if err != nil {
		return err
	}
	defer closeSession(long)
	short, err := probe(time.Millisecond)
	if err != nil {
		return err
	}
	defer closeSession(short)
	id, err := (&keeper{c: c, session: long}).identity(ctx)
	if err != nil {
		return err
	}
	shortest := short.Timeout()
	if c.longest = long.Timeout(); shortest > c.longest {
		return fmt.Errorf("ZooKeeper's sessions last from %v to %v: its bounds are changing", shortest, c.longest)
	}
	if poll == 0 {
		poll = (c.longest + shortest) / 2
	}
	c.caps = driver.Caps{
		Store:   "zk:" + id,
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: shortest, Poll: poll, TokenBlock: 1,
		Guarantees: guarantees(max(usualTick, shortest/2), c.wire.Leaderless),
	}
	return nil
}

// usualTick is how late servers end sessions, at most: by their tick. No client may ask for it by default. If it is
// longer, the shortest session is two ticks, unless minSessionTimeout says otherwise.
const usualTick = 2 * time.Second

// closeSession ends a session, at the server too if it answers: without that the session ends a little later.
func closeSession(s *zk.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Close(ctx)
}

// identity returns what tells this store from all others: a random text in the one node that stays for
// good. ZooKeeper itself has nothing of the kind. An empty node was made by somebody as a directory.
func (k *keeper) identity(ctx context.Context) (string, error) {
	own := k.c.layout.own()
	for {
		read, err := k.one(ctx, zk.GetData(own, nil))
		switch {
		case errors.Is(err, zk.NoNode):
			replies, err := k.createIn(ctx, []string{path.Dir(own)}, zk.Create(own, []byte(rand.Text()), k.c.acl, 0))
			if err == nil && !errors.Is(replies[0].Err, zk.NodeExists) {
				err = replies[0].Err
			}
			if err != nil {
				return "", fmt.Errorf("making %s: %w", own, err)
			}
		case err != nil:
			return "", fmt.Errorf("reading %s: %w", own, err)
		case len(read.Data) == 0:
			_, err := k.one(ctx, zk.SetData(own, []byte(rand.Text()), read.Stat.Version))
			if err != nil && !errors.Is(err, zk.BadVersion) && !errors.Is(err, zk.NoNode) {
				return "", fmt.Errorf("writing %s: %w", own, err)
			}
		case len(read.Data) != len(rand.Text()):
			return "", fmt.Errorf("%s is not Holdfast's: it has %d bytes", own, len(read.Data))
		case read.Zxid >= 1<<52: // after a million elections
			return "", fmt.Errorf("ZooKeeper's zxid 0x%x is too high for fencing tokens below 2^53", read.Zxid)
		default:
			return string(read.Data), nil
		}
	}
}
