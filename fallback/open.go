package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// Options configure a Driver. The zero value means the defaults.
type Options struct {
	// Silence is for how long the first store may answer nothing before the breaker opens. After that the
	// store is probed each fifth of this time. 0: 5 s. It must be at least 10 ms.
	Silence time.Duration
	// After is how long after the last sign of life of the first store a name may be taken from the
	// second. It should be the longest TTL plus lock-delay, or minimum hold, of any client: by then every
	// hold of the first store is over. 0: those of the request. Negative: at once, which two holders at the
	// same time must not harm.
	After time.Duration
	// OnChange is told of each change of the breaker. It must not block, because probes wait for it, and it
	// must not close the driver. Nil: nobody is told.
	OnChange func(Change)
	// Clock is the clock of both drivers. Nil: driver.HostClock.
	Clock driver.Clock
}

// Change says how the driver fares after a change of the breaker or, from Driver.Status, at present.
type Change struct {
	Open     bool          // the first store is silent, and is probed; else it is in use, but for names in use in the second
	Silent   time.Duration // if Open: for how long the first store has not answered
	Degraded int           // how many holds this driver may have in the second store
	Err      error         // the last error of the first store without an answer; nil: there is none
}

// Driver keeps locks in the first store and, where there is one, in the second while the first is
// silent. Safe for concurrent use.
type Driver struct {
	forward // to the first store, if there is no second
	opts    Options
	caps    driver.Caps
	second  driver.Driver                                // nil: none
	reopen  func(context.Context) (driver.Driver, error) // opens the first store
	life    context.Context                              // ends with Close
	die     context.CancelFunc
	monitor sync.WaitGroup

	mu sync.Mutex
	breaker
	first driver.Driver           // nil: it could not be opened yet
	last  driver.Request          // the last that was sent to the first store
	holds map[string]driver.Grant // by owner: what the second store has granted, or may have
}

type forward = wrap.Forward

// New returns a driver that keeps locks in first and, while that is silent, in second. If second is
// nil it refuses locks while first is silent. It does no I/O. Nil options mean the defaults. Close
// of the driver closes both. The second driver must be a driver.Operator.
func New(first, second driver.Driver, o *Options) (*Driver, error) {
	if first == nil {
		return nil, errors.New("fallback: the first driver is nil")
	}
	d, err := prepare(second, o)
	if err == nil {
		err = d.join(first, first.Caps().Store)
	}
	if err != nil {
		return nil, err
	}
	d.monitor.Go(d.watch)
	return d, nil
}

// prepare returns a driver without a first store.
func prepare(second driver.Driver, o *Options) (*Driver, error) {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{opts: *o, second: second, holds: map[string]driver.Grant{}}
	d.opts.Silence = cmp.Or(o.Silence, 5*time.Second)
	if o.Clock == nil {
		d.opts.Clock = driver.HostClock
	}
	if d.opts.Silence < 10*time.Millisecond {
		return nil, fmt.Errorf("fallback: option Silence is %v: at least 10ms is needed", o.Silence)
	}
	if second != nil && (forward{Driver: second}).Lacks((*driver.Operator)(nil)) {
		return nil, fmt.Errorf("fallback: the second store cannot tell who holds its locks: %w", driver.ErrUnsupported)
	}
	d.life, d.die = context.WithCancel(context.Background())
	d.epoch, d.end = context.WithCancel(context.Background())
	return d, nil
}

// join sets the first store, and what the driver can do with it. Store is where the first store is.
func (d *Driver) join(first driver.Driver, store string) error {
	d.first, d.caps = first, first.Caps()
	if d.second == nil {
		d.forward = forward{Driver: first}
		return nil
	}
	second := d.second.Caps()
	if d.caps.Store == second.Store {
		return fmt.Errorf("fallback: the second store is the first one, %s: a store that is of use while "+
			"the other is down is needed", second.Store)
	}
	d.caps = meet(d.caps, second, store+" or "+second.Store)
	return nil
}

// ErrSecond: Open cannot open the second store. The program decides whether to go on with the first
// alone.
var ErrSecond = errors.New("the second store cannot be opened")

// Open opens the stores that the URLs name and returns a driver over both. The second must be reachable now
// (else the error is ErrSecond), and the first need not be: if it does not answer within Options.Silence, or
// cannot be connected to, the breaker begins open, and probes open the store. The context bounds the opening
// only.
//
// The parameters hf.prefix and hf.ttl of the URLs are the caller's to remove, as holdfast.Open does: see
// holdfast.ClientOptions. The driver adds no prefix.
func Open(ctx context.Context, first, second *url.URL, o *Options) (*Driver, error) {
	b, err := driver.Open(ctx, second)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSecond, driver.Redact(second), err)
	}
	d, err := prepare(b, o)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	began := d.now()
	trial, cancel := context.WithTimeout(ctx, d.opts.Silence)
	defer cancel()
	a, err := driver.Open(trial, first)
	// The store is called the same whether the first answers now or later.
	store := (&url.URL{Scheme: first.Scheme, Host: first.Host, Path: first.Path}).String()
	switch {
	case err == nil:
		err = d.join(a, store)
	case ctx.Err() == nil && unreachable(err): // what the first store can do is checked when it answers
		d.reopen = func(ctx context.Context) (driver.Driver, error) { return driver.Open(ctx, first) }
		d.caps = meet(b.Caps(), b.Caps(), store+" or "+b.Caps().Store)
		d.since, d.err = began, err
		d.openLocked()
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.monitor.Go(d.watch)
	return d, nil
}

// unreachable reports whether a store could not be opened because it is silent. Other errors, such as a wrong
// password or an unknown parameter, must be mended.
func unreachable(err error) bool {
	var network net.Error // an errno and the end of a deadline too
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reach returns the first driver, and opens it if it has not been opened yet. Only the monitor calls it.
func (d *Driver) reach(ctx context.Context) (driver.Driver, error) {
	if first := d.firstNow(); first != nil {
		return first, nil
	}
	first, err := d.reopen(ctx)
	if err != nil {
		return nil, err
	}
	missing := first.Caps().Missing(d.caps)
	if !d.Lacks((*driver.Queuer)(nil)) && (forward{Driver: first}).Lacks((*driver.Queuer)(nil)) {
		missing = append(missing, "a queue")
	}
	if len(missing) > 0 {
		return nil, errors.Join(fmt.Errorf("the first store, which could be opened only now, lacks %s",
			strings.Join(missing, ", ")), first.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = first
	return first, nil
}

// firstNow returns the first driver, or nil.
func (d *Driver) firstNow() driver.Driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}

// Caps implements driver.Driver. Without a second store they are those of the first.
func (d *Driver) Caps() driver.Caps { return d.caps }

// Close implements driver.Driver. It closes both drivers.
func (d *Driver) Close() error {
	d.die()
	d.monitor.Wait() // the monitor may be opening the first store
	var errs []error
	for _, each := range []driver.Driver{d.firstNow(), d.second} {
		if each != nil {
			errs = append(errs, each.Close())
		}
	}
	return errors.Join(errs...)
}
