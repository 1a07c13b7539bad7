// Package chaos is for tests: it injects the faults of networks. A [Driver] wraps any driver,
// and delays or drops requests, drops or holds back replies, sends requests twice and cuts
// the client off, at random by a seed or on command.
//
// A [Proxy] does the same below a driver: it stands between clients and a TCP server, and
// delays, holds back and cuts what they send.
//
// During a fault a [Driver] returns what a good driver would: if the outcome is not known, it
// returns ErrUncertain with the request to withdraw, and it never claims what the store has
// not answered.
package chaos

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// Options are the faults that happen at random. A probability, 0 to 1, is that of one call;
// the zero value of each field means never.
type Options struct {
	Seed uint64 // the same seed and the same calls of one goroutine: the same faults

	Delay       float64 // the request is late by up to MaxDelay
	DropRequest float64 // the request never arrives
	DropReply   float64 // the request takes effect, the reply never arrives
	HoldReply   float64 // the request takes effect, the reply is late by up to MaxDelay
	Duplicate   float64 // the request arrives twice, but for a Try that was refused; the first reply counts
	Partition   float64 // the client is cut off for up to MaxDelay, this call included

	MaxDelay time.Duration // 0: 10 ms
}

// The causes behind the errors that a Driver makes up.
var (
	ErrLost        = errors.New("chaos: lost on the way")
	ErrPartitioned = errors.New("chaos: cut off from the store")
)

// Driver is a driver with faults. Every operation of the inner driver goes
// through it, the optional ones too. Safe for concurrent use.
type Driver struct {
	wrap.Forward
	options Options

	mu        sync.Mutex
	random    *rand.Rand
	partition gate
	requests  gate
	replies   gate
	late      []func() // requests whose callers gave up before they were let through
	heal      *time.Timer
	closed    chan struct{}
	isClosed  bool
}

// New returns a driver around d that fails as o says. It owns d: Close closes
// both.
func New(d driver.Driver, o Options) *Driver {
	if o.MaxDelay <= 0 {
		o.MaxDelay = 10 * time.Millisecond
	}
	return &Driver{
		Forward: wrap.Forward{Driver: d}, options: o,
		random: rand.New(rand.NewPCG(o.Seed, 0x686f6c6466617374)),
		closed: make(chan struct{}),
	}
}

// gate holds callers back while it is closed. The zero value is open.
type gate struct{ opened chan struct{} } // nil: open

func (g *gate) close() {
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// set closes or opens a gate.
func (d *Driver) set(change func(*gate), g *gate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(g)
}

// Partition cuts the client off: neither requests nor replies arrive, those under way
// included. Calls wait for Heal, the end of their context or Close, and fail. Losses still
// arrive, because they are hints.
func (d *Driver) Partition() { d.set((*gate).close, &d.partition) }

// Heal ends the partition.
func (d *Driver) Heal() { d.set((*gate).open, &d.partition) }

// HoldReplies lets requests through and holds the replies back until ReleaseReplies. If the
// context of a call ends first, the call fails and its outcome is not known.
func (d *Driver) HoldReplies() { d.set((*gate).close, &d.replies) }

// ReleaseReplies lets the held replies through, late.
func (d *Driver) ReleaseReplies() { d.set((*gate).open, &d.replies) }

// HoldRequests holds requests back until ReleaseRequests. If the context of a call ends first,
// the call fails, and its request arrives later all the same. If it was withdrawn meanwhile,
// it must not take effect then (P6).
func (d *Driver) HoldRequests() { d.set((*gate).close, &d.requests) }

// ReleaseRequests lets the held requests arrive. Those whose callers have given
// up have arrived when it returns.
func (d *Driver) ReleaseRequests() {
	d.mu.Lock()
	d.requests.open()
	late := d.late
	d.late = nil
	d.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// Close closes the inner driver. Calls that wait end with ErrClosed; requests
// held back never arrive.
func (d *Driver) Close() error {
	d.mu.Lock()
	if !d.isClosed {
		d.isClosed = true
		close(d.closed)
		d.late = nil
		if d.heal != nil {
			d.heal.Stop()
		}
	}
	d.mu.Unlock()
	return d.Driver.Close()
}
