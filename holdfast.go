package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// Client takes locks in one store. Make one per store and process, and close it at the end. It
// renews all its leases together. Safe for concurrent use.
type Client struct {
	driver driver.Driver
	core   *core.Core
	caps   Caps
	opts   ClientOptions
	events eventQueue

	mu     sync.Mutex
	shared map[settingsKey]*settings
}

// Open opens the store that the URL names and returns a client for it. The context bounds the
// opening only. The package of the store must have been imported, if only for its side effect:
//
//	import _ "github.com/holdfastlock/holdfast/memlock" // mem://
//
// Parameters of the URL that begin with "hf." are Holdfast's: hf.prefix is ClientOptions.Prefix,
// hf.ttl is ClientOptions.TTL (as time.ParseDuration reads it: 10s, 1m30s), the others are the
// driver's. An unknown one is an error. No error, log record or note shows the URL's password.
func Open(ctx context.Context, rawURL string) (*Client, error) { return OpenWith(ctx, rawURL, nil) }

// OpenWith is Open with options. hf.prefix and hf.ttl of the URL take the place of Prefix and TTL. Nil options mean the
// defaults.
func OpenWith(ctx context.Context, rawURL string, o *ClientOptions) (*Client, error) {
	if ctx == nil {
		return nil, errNilContext("open")
	}
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open: %w", err)
	}
	params, rest, err := storeurl.Take(u)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open: %w", err)
	}
	d, err := driver.Open(ctx, rest)
	if err != nil {
		return nil, fmt.Errorf("holdfast: open %s: %w", driver.Redact(u), err)
	}
	opts := ClientOptions{}
	if o != nil {
		opts = *o
	}
	opts.Prefix, opts.TTL = cmp.Or(params.Prefix, opts.Prefix), cmp.Or(params.TTL, opts.TTL)
	c, err := New(d, &opts)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return c, nil
}

// New returns a client that keeps its locks in the driver's store. It does no I/O. Nil options mean
// the defaults. Close of the client closes the driver too.
func New(d driver.Driver, o *ClientOptions) (*Client, error) {
	if d == nil {
		return nil, errors.New("holdfast: new: the driver is nil")
	}
	if o == nil {
		o = &ClientOptions{}
	}
	c := &Client{
		driver: d, caps: d.Caps(), opts: *o,
		shared: map[settingsKey]*settings{},
		events: eventQueue{logger: o.Logger},
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("holdfast: new: %w", err)
	}
	config := core.Config{
		Driver: d, Caps: c.caps, Clock: o.Clock, Prefix: o.Prefix, Tell: c.emit, Traced: o.Trace != nil,
		LostError:        func(name string, t Token, reason error) error { return &LostError{name, t, reason} },
		UncertainRelease: func(name string, err error) error { return failed("release", name, ErrUncertain, err) },
	}
	if config.Clock == nil {
		config.Clock = driver.HostClock
	}
	if !o.Events.any() && o.Logger == nil {
		config.Tell = nil
	}
	c.core = core.New(config)
	return c, nil
}

// Close closes the client: waiting acquires return ErrClosed, leases end (ErrReleased) and are
// released in batches, and the driver is closed.
//
// It waits at most about 5 s for the store. If the store has not confirmed every release by then,
// the error is ErrUncertain, and what is left ends with its TTL. Then it waits, for at most 1 s,
// until the hooks and the Logger have been told everything. A second call waits for the first, for
// at most 5 s, and returns nil.
func (c *Client) Close() error { return c.core.Close(c.events.flush) }

// check returns what is wrong with the options, or with what the driver says of its store.
func (c *Client) check() error {
	if c.caps.Store == "" {
		return errors.New("the driver does not identify its store (Caps.Store is empty)")
	}
	if missing := c.caps.Missing(c.opts.Need); len(missing) > 0 {
		return fmt.Errorf("%s: %w: it lacks %s",
			c.caps.Store, ErrUnsupported, strings.Join(missing, ", "))
	}
	if c.opts.Margin < 0 {
		return fmt.Errorf("option Margin is %v: it must not be negative", c.opts.Margin)
	}
	if c.opts.TTL != 0 {
		if _, err := settle(settingsKey{mode: Exclusive}, &c.caps, &c.opts); err != nil {
			return fmt.Errorf("client %w", err)
		}
	}
	if c.opts.Prefix != "" {
		// A prefix is valid if a name with it is.
		if err := driver.CheckName(c.opts.Prefix + "x"); err != nil {
			return fmt.Errorf("option Prefix: %w", err)
		}
	}
	return nil
}

// Caps returns what the store can do and what it guarantees.
func (c *Client) Caps() Caps { return c.caps }

// Mutex returns the lock that holds name exclusively. Nil options mean the defaults. Each use of
// the lock returns what is wrong with the name or the options.
func (c *Client) Mutex(name string, o *Options) *Lock {
	return c.lock(name, settingsKey{mode: Exclusive}, o)
}

// RWMutex is a read-write lock: any number of shared holds, or one exclusive hold.
type RWMutex struct {
	Read  *Lock // shared
	Write *Lock // exclusive: the same lock as Mutex
}

// RWMutex returns the read-write lock on name. Where Caps.Fair, readers and writers are served in
// the order in which they came, so neither starves.
func (c *Client) RWMutex(name string, o *Options) RWMutex {
	return RWMutex{
		Read:  c.lock(name, settingsKey{mode: Shared, rw: true}, o),
		Write: c.lock(name, settingsKey{mode: Exclusive, rw: true}, o),
	}
}

// Semaphore returns the lock that takes Options.Permits of the name's slots. All users of the name
// must give the same number of slots.
func (c *Client) Semaphore(name string, slots int, o *Options) *Lock {
	return c.lock(name, settingsKey{mode: Slot, slots: slots}, o)
}

func (c *Client) lock(name string, key settingsKey, o *Options) *Lock {
	if o != nil {
		key.Options = *o
	}
	s, err := c.settings(key)
	if err == nil {
		err = c.checkName(name)
	}
	if err != nil {
		refused := *s
		s, refused.err = &refused, err
	}
	return &Lock{name: name, settings: s}
}

// checkName checks a name together with the client's prefix (P10).
func (c *Client) checkName(name string) error {
	if err := driver.CheckName(name); err != nil || c.opts.Prefix == "" {
		return err
	}
	return driver.CheckName(c.opts.Prefix + name)
}

// maxShared bounds the cache of settings, for programs that make a new Note for every lock.
const maxShared = 64

// settings returns the settings for the key. Locks with the same key share them: ten thousand locks
// have a handful of settings.
func (c *Client) settings(key settingsKey) (*settings, error) {
	c.mu.Lock()
	s := c.shared[key]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := settle(key, &c.caps, &c.opts)
	s.client = c
	if err != nil {
		return s, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shared) < maxShared {
		c.shared[key] = s
	}
	return s, nil
}

// Types of package driver that users of locks need too.
type (
	// Token is a fencing token, an int64 that grows with every new hold on a name (P3). 0: the
	// store gives none.
	Token = driver.Token
	// Mode says how a lease holds its name: Exclusive, Shared or Slot.
	Mode = driver.Mode
	// Caps says what a store can do, and in Guarantees what remains of the promises when things
	// go wrong. The fields are shown by go doc driver.Caps.
	Caps = driver.Caps
	// Info is the state of one name, for operators: its holders and waiters. The fields are shown
	// by go doc driver.Info.
	Info = driver.Info
)

// The modes of a lease.
const (
	Exclusive = driver.Exclusive
	Shared    = driver.Shared
	Slot      = driver.Slot
)
