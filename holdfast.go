package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/internal/timer"
)

// Client takes locks in one store. Make one per store and process, and close it at the end. It
// renews all its leases together. Safe for concurrent use.
type Client struct {
	driver  driver.Driver
	queuer  driver.Queuer           // nil: the store has no queue
	sharder driver.Sharder          // nil: the store has no parts
	hinter  driver.ContentionHinter // nil: the driver gives no hints of contention
	waker   driver.Waker            // nil: the store does not tell when a name is free, or it has a queue
	caps    Caps
	opts    ClientOptions
	clock   driver.Clock
	timer   *timer.Timer
	events  eventQueue
	closing context.Context // ends when Close begins
	close   context.CancelCauseFunc

	mu      sync.Mutex
	engine  *engine.Engine
	shared  map[settingsKey]*settings
	bound   bound
	cancels cancellations // of leases that have just ended
	active  int           // operations and batches under way, for Close to wait for
	quiet   chan struct{} // closed when the last of them ends after Close has begun
	closed  bool
	done    chan struct{} // closed when Close has finished
}

// Open opens the store that the URL names and returns a client for it. The context bounds the
// opening only. The package of the store must have been imported, if only for its side effect:
//
//	import _ "github.com/holdfastlock/holdfast/memlock" // mem://
//
// Parameters of the URL that begin with "hf." are Holdfast's: hf.prefix is ClientOptions.Prefix,
// hf.ttl is ClientOptions.TTL (as time.ParseDuration reads it: 10s, 1m30s), the others are the
// driver's. An unknown one is an error. No error, log record or note shows the URL's password.
func Open(ctx context.Context, rawURL string) (*Client, error) {
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
	c, err := New(d, &ClientOptions{Prefix: params.Prefix, TTL: params.TTL})
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
		driver: d, caps: d.Caps(), opts: *o, clock: o.Clock,
		shared: map[settingsKey]*settings{},
		events: eventQueue{logger: o.Logger},
		done:   make(chan struct{}),
	}
	if c.clock == nil {
		c.clock = driver.HostClock
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("holdfast: new: %w", err)
	}
	c.queuer, _ = driver.As[driver.Queuer](d, driver.OpQueue)
	c.sharder, _ = driver.As[driver.Sharder](d, driver.OpShard)
	c.hinter, _ = c.queuer.(driver.ContentionHinter)
	if c.queuer == nil {
		c.waker, _ = d.(driver.Waker)
	}
	c.engine = engine.New(engine.Config{
		Prefix: c.opts.Prefix, Queue: c.queuer != nil, Sharded: c.sharder != nil,
		Poll: c.caps.PollInterval(), TokenBlock: c.caps.TokenBlock,
		Silent:   !c.opts.Events.any() && c.opts.Logger == nil,
		Traced:   c.opts.Trace != nil,
		NewOwner: rand.Text, Jitter: jitter,
		LostError: newLostError, UncertainRelease: newUncertainRelease,
	})
	c.timer = timer.New(c.clock, c.tick)
	c.closing, c.close = context.WithCancelCause(context.Background())
	if n, ok := driver.As[driver.Notifier](d, driver.OpNotify); ok {
		go c.listen(n.Losses())
	}
	return c, nil
}

// check returns what is wrong with the options, or with what the driver announces.
func (c *Client) check() error {
	if c.caps.Store == "" {
		return errors.New("the driver does not identify its store (Caps.Store is empty)")
	}
	for op, ok := range map[driver.Ops]bool{
		driver.OpQueue:     has[driver.Queuer](c.driver),
		driver.OpNotify:    has[driver.Notifier](c.driver),
		driver.OpShard:     has[driver.Sharder](c.driver),
		driver.OpInspect:   has[driver.Inspector](c.driver),
		driver.OpBreak:     has[driver.Breaker](c.driver),
		driver.OpDowngrade: has[driver.Downgrader](c.driver),
		driver.OpAnnotate:  has[driver.Annotator](c.driver),
		driver.OpWatch:     has[driver.Watcher](c.driver),
		driver.OpVote:      has[driver.Voter](c.driver),
		driver.OpRaise:     has[driver.Raiser](c.driver),
	} {
		if c.caps.Ops.Has(op) && !ok {
			return fmt.Errorf("the driver announces %v but has no method for it", op)
		}
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

func has[T any](d driver.Driver) bool {
	_, ok := d.(T)
	return ok
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
