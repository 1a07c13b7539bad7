package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
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
	Err      error         // if Open: of the last probe
}

// Driver keeps locks in the first store and, while that is silent, in the second. Safe for concurrent use.
type Driver struct {
	opts    Options
	caps    driver.Caps
	second  driver.Driver
	like    forward                                      // to the first store or, if that was not opened at the start, to the second
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

// New returns a driver that keeps locks in first and, while that is silent, in second. It does no I/O. Nil
// options mean the defaults. Close of the driver closes both. The second driver must be a driver.Operator.
func New(first, second driver.Driver, o *Options) (*Driver, error) {
	d, err := prepare(second, o)
	if err != nil {
		return nil, err
	}
	return d.begin(first, first.Caps().Store)
}

// Open is New for a first store that may be down now. If the store does not answer within Options.Silence, or
// cannot be connected to, the breaker begins open, and probes open the store. The context bounds the opening only.
//
// The caller removes hf.prefix and hf.ttl from the URL, as holdfast.Open does.
func Open(ctx context.Context, first *url.URL, second driver.Driver, o *Options) (*Driver, error) {
	d, err := prepare(second, o)
	if err != nil {
		return nil, err
	}
	began := d.opts.Clock.Now()
	trial, cancel := context.WithTimeout(ctx, d.opts.Silence)
	defer cancel()
	opened, err := driver.Open(trial, first)
	// The store is called the same whether the first answers now or later.
	store := (&url.URL{Scheme: first.Scheme, Host: first.Host, Path: first.Path}).String()
	switch {
	case err == nil:
		if d, err = d.begin(opened, store); err != nil {
			err = errors.Join(err, opened.Close())
		}
		return d, err
	case ctx.Err() != nil || !unreachable(err):
		return nil, err
	}
	d.reopen = func(ctx context.Context) (driver.Driver, error) { return driver.Open(ctx, first) }
	d.open, d.mixed, d.since, d.err = true, true, began, err
	return d.begin(nil, store)
}

// prepare returns a driver without a first store.
func prepare(second driver.Driver, o *Options) (*Driver, error) {
	if o == nil {
		o = &Options{}
	}
	d := &Driver{opts: *o, second: second, holds: map[string]driver.Grant{}}
	d.opts.Silence = cmp.Or(o.Silence, 5*time.Second)
	d.opts.Clock = cmp.Or(o.Clock, driver.HostClock)
	switch {
	case d.opts.Silence < 10*time.Millisecond:
		return nil, fmt.Errorf("fallback: option Silence is %v: at least 10ms is needed", o.Silence)
	case (forward{Driver: second}).Lacks((*driver.Operator)(nil)):
		return nil, fmt.Errorf("fallback: the second store cannot tell who holds its locks: %w", driver.ErrUnsupported)
	}
	d.life, d.die = context.WithCancel(context.Background())
	d.epoch, d.end = context.WithCancel(context.Background())
	return d, nil
}

// begin begins to watch the first store, which is nil if it could not be opened yet. Store is where it is.
func (d *Driver) begin(first driver.Driver, store string) (*Driver, error) {
	second := d.second.Caps()
	if first != nil && first.Caps().Store == second.Store {
		return nil, fmt.Errorf("fallback: the second store is the first one, %s: a store that is of use while "+
			"the other is down is needed", second.Store)
	}
	d.first, d.like = first, forward{Driver: cmp.Or(first, d.second)}
	d.caps = meet(d.like.Caps(), second, store+" or "+second.Store)
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
	if d.first != nil {
		return d.first, nil
	}
	first, err := d.reopen(ctx)
	if err != nil {
		return nil, err
	}
	queue := (*driver.Queuer)(nil)
	if len(first.Caps().Missing(d.caps)) > 0 || !d.Lacks(queue) && (forward{Driver: first}).Lacks(queue) {
		return nil, errors.Join(errors.New("the first store, which could be opened only now, can do less than the second"), first.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = first
	return first, nil
}

// Caps implements driver.Driver.
func (d *Driver) Caps() driver.Caps { return d.caps }

// Close implements driver.Driver. It closes both drivers.
func (d *Driver) Close() error {
	d.die()
	d.monitor.Wait() // the monitor may be opening the first store
	err := d.second.Close()
	if d.first != nil {
		err = errors.Join(d.first.Close(), err)
	}
	return err
}
