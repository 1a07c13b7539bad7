package fallback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Options configure a Driver. The zero value means the defaults.
type Options struct {
	// Silence is for how long the first store may answer nothing before the breaker opens.
	// 0: 5 s. It must be at least 10 ms.
	Silence time.Duration
	// Probe is the pause between two probes of the first store while the breaker is not closed.
	// 0: 1 s. It must be at least 1 ms.
	Probe time.Duration
	// After is how long after the last sign of life of the first store a name may be taken from the
	// second. By then every hold that the first store has granted must be over, so it should be the
	// longest TTL plus lock-delay, or minimum hold, of any client. 0: TTL plus lock-delay of the
	// request, or its minimum hold where that is longer. Negative: at once, which two holders at
	// the same time must not harm.
	After time.Duration
	// OnChange is told of each change of the breaker. One goroutine calls it, which also probes the
	// first store, so it must not block. It must not close the driver. Nil: nobody is told.
	OnChange func(Change)
	// Clock is the clock of both drivers. Nil: driver.HostClock.
	Clock driver.Clock
}

// Change is a change of the breaker.
type Change struct {
	State    State
	Degraded int   // how many holds this driver has in the second store
	Err      error // Open: why the last probe failed
}

// Status is how the driver fares at present, for metrics and for operators.
type Status struct {
	State    State
	Silent   time.Duration // for how long the first store has not answered; 0: it does
	Degraded int           // how many holds this driver has in the second store
	Opened   int           // how often the breaker has opened
	Granted  int           // how many holds the second store has granted
	Owed     int           // how many requests the first store is still to forget
	Err      error         // the last error of the first store without an answer; nil: there is none
}

// Driver keeps locks in the first store and, where there is one, in the second while the first is
// silent. Safe for concurrent use.
type Driver struct {
	opts   Options
	clock  driver.Clock
	caps   driver.Caps
	second driver.Driver // nil: none
	reopen func(context.Context) (driver.Driver, error)

	life       context.Context // ends with Close
	die        context.CancelFunc
	background sync.WaitGroup

	mu     sync.Mutex
	first  driver.Driver // nil: it could not be opened yet
	closed bool
	breaker
	probed  driver.Instant            // the last probe's sending
	last    driver.Request            // the last that was sent to the first store
	asking  map[string]driver.Grant   // by owner: what the first store may know and has not granted
	debts   map[string]driver.Grant   // by owner: the same, withdrawn when the first store answers
	leases  map[string]*degradedLease // by owner: what the second store may know
	granted int                       // how many holds the second store has granted
	untold  []Change
	losses  chan driver.Loss // of both stores
}

// New returns a driver that keeps locks in first and, while that is silent, in second. If second is
// nil it refuses locks while first is silent. It does no I/O. Nil options mean the defaults. Close
// of the driver closes both. The second driver must support driver.OpInspect.
func New(first, second driver.Driver, o *Options) (*Driver, error) {
	if first == nil {
		return nil, errors.New("fallback: the first driver is nil")
	}
	a := first.Caps()
	if second == nil {
		return newDriver(first, nil, a, o)
	}
	if err := same(first, second); err != nil {
		return nil, err
	}
	b := second.Caps()
	return newDriver(first, second, meet(a, b, a.Store+" or "+b.Store), o)
}

// same refuses one store twice.
func same(first, second driver.Driver) error {
	store := first.Caps().Store
	if store != second.Caps().Store {
		return nil
	}
	return fmt.Errorf("fallback: the second store is the first one, %s: a store that is of use while "+
		"the other is down is needed", store)
}

func newDriver(first, second driver.Driver, caps driver.Caps, o *Options) (*Driver, error) {
	caps.Ops &^= driver.OpVote | driver.OpRaise // it is no node of a quorum
	if o == nil {
		o = &Options{}
	}
	d := &Driver{
		opts: *o, clock: o.Clock, caps: caps, first: first, second: second,
		asking: map[string]driver.Grant{}, debts: map[string]driver.Grant{},
		leases: map[string]*degradedLease{},
	}
	if d.clock == nil {
		d.clock = driver.HostClock
	}
	if d.opts.Silence == 0 {
		d.opts.Silence = 5 * time.Second
	}
	if d.opts.Probe == 0 {
		d.opts.Probe = time.Second
	}
	switch {
	case d.opts.Silence < 10*time.Millisecond:
		return nil, fmt.Errorf("fallback: option Silence is %v: at least 10ms is needed", o.Silence)
	case d.opts.Probe < time.Millisecond:
		return nil, fmt.Errorf("fallback: option Probe is %v: at least 1ms is needed", o.Probe)
	}
	if second != nil {
		if _, ok := driver.As[driver.Inspector](second, driver.OpInspect); !ok {
			return nil, fmt.Errorf("fallback: the second store cannot tell who holds its locks: %w",
				driver.ErrUnsupported)
		}
	}
	d.life, d.die = context.WithCancel(context.Background())
	d.changed = make(chan struct{})
	d.epoch, d.open = context.WithCancel(context.Background())
	if second != nil {
		d.losses = make(chan driver.Loss)
		for _, each := range []driver.Driver{first, second} {
			if each != nil {
				d.hear(each)
			}
		}
	}
	return d, nil
}

// ErrSecond: Open cannot open the second store. The program decides whether to go on with the first
// alone.
var ErrSecond = errors.New("the second store cannot be opened")

// Open opens the stores that the URLs name and returns a driver over both. Without a second URL the
// driver refuses locks while the first store is silent, and the first must be reachable now. With
// one, the second must be reachable now (else the error is ErrSecond), and the first need not be: if it
// does not answer within Options.Silence, or cannot be connected to, the breaker begins open, and
// probes open the store. The context bounds the opening only.
//
// The parameters hf.prefix and hf.ttl of the URLs are the caller's to remove, as holdfast.Open does: see
// holdfast.ClientOptions. The driver adds no prefix.
func Open(ctx context.Context, first, second *url.URL, o *Options) (*Driver, error) {
	if second == nil {
		d, err := driver.Open(ctx, first)
		if err != nil {
			return nil, err
		}
		return closeUnless(d, nil)(New(d, nil, o))
	}
	b, err := driver.Open(ctx, second)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSecond, driver.Redact(second), err)
	}
	silence := 5 * time.Second
	clock := driver.HostClock
	if o != nil && o.Silence > 0 {
		silence = o.Silence
	}
	if o != nil && o.Clock != nil {
		clock = o.Clock
	}
	began := clock.Now()
	trial, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	a, err := driver.Open(trial, first)
	if err != nil && (ctx.Err() != nil || !unreachable(err)) {
		return nil, errors.Join(err, b.Close())
	}
	// The store is called the same whether the first answers now or later.
	caps := b.Caps()
	store := place(first) + " or " + caps.Store
	if err == nil {
		if err := same(a, b); err != nil {
			return nil, errors.Join(err, a.Close(), b.Close())
		}
		return closeUnless(a, b)(newDriver(a, b, meet(a.Caps(), caps, store), o))
	}
	// What the first store can do is not known: it is checked when the store answers.
	d, failed := newDriver(nil, b, meet(caps, caps, store), o)
	if failed != nil {
		return nil, errors.Join(failed, b.Close())
	}
	d.reopen = func(ctx context.Context) (driver.Driver, error) { return driver.Open(ctx, first) }
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent, d.asked, d.err = true, began, err
	d.turnLocked(StateOpen, err)
	d.startMonitorLocked()
	return d, nil
}

// closeUnless closes the drivers if they cannot be used.
func closeUnless(drivers ...driver.Driver) func(*Driver, error) (*Driver, error) {
	return func(d *Driver, err error) (*Driver, error) {
		if err == nil {
			return d, nil
		}
		for _, d := range drivers {
			if d != nil {
				err = errors.Join(err, d.Close())
			}
		}
		return nil, err
	}
}

// place is where a store is, without user, password and parameters.
func place(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// unreachable reports whether a store could not be opened because it is silent. Other errors, such
// as a wrong password or an unknown parameter, must be mended.
func unreachable(err error) bool {
	var network net.Error
	var errno syscall.Errno
	return errors.As(err, &network) || errors.As(err, &errno) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reachFirst returns the first driver, and opens it if it has not been opened yet.
func (d *Driver) reachFirst(ctx context.Context) (driver.Driver, error) {
	d.mu.Lock()
	first := d.first
	d.mu.Unlock()
	if first != nil {
		return first, nil
	}
	// Only the monitor comes here, so one goroutine does.
	first, err := d.reopen(ctx)
	if err != nil {
		return nil, err
	}
	need, have := d.caps, first.Caps()
	need.Ops &^= driver.OpShard
	if missing := have.Missing(need); len(missing) > 0 {
		return nil, errors.Join(fmt.Errorf("the first store, which could be opened only now, lacks %s",
			strings.Join(missing, ", ")), first.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(driver.ErrClosed, first.Close())
	}
	d.first = first
	d.hear(first)
	return first, nil
}

// firstNow returns the first driver, or why there is none.
func (d *Driver) firstNow() (driver.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == nil {
		return nil, d.silentLocked()
	}
	return d.first, nil
}

// Status returns how the driver fares at present.
func (d *Driver) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Status{
		State: d.state, Degraded: d.degradedLocked(), Opened: d.opened, Granted: d.granted,
		Owed: len(d.debts), Err: d.err,
	}
	if d.state == StateOpen {
		s.Silent = d.clock.Now().Sub(d.asked)
	}
	return s
}

// Caps implements driver.Driver. Without a second store they are those of the first.
func (d *Driver) Caps() driver.Caps { return d.caps }

// closeWithin is how long Close has to withdraw what the first store may still know.
const closeWithin = time.Second

// Close implements driver.Driver. It closes both drivers.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	first, state, debts := d.first, d.state, len(d.debts)
	d.mu.Unlock()
	d.die()
	d.background.Wait()
	if d.losses != nil {
		close(d.losses)
	}
	if first != nil && state != StateOpen && debts > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		first.Release(ctx, d.owed()) // what is not withdrawn ends by itself
		cancel()
	}
	d.mu.Lock()
	first = d.first // the monitor may have opened it
	d.mu.Unlock()
	var err error
	if first != nil {
		err = first.Close()
	}
	if d.second != nil {
		err = errors.Join(err, d.second.Close())
	}
	return err
}
