// Package engine is the state of one client of a store: which callers wait for which
// names, what the client holds and until when it trusts that, what is to be renewed,
// released or withdrawn, and what happens next.
//
// It does no I/O, starts no goroutine and reads no clock. Events go in ([Event]), each
// with the time; what is to be done comes out as plain values: the next [Action] of the
// caller that the event is about, and [Effect]s for all others. Package core carries
// them out and feeds the results back. So a test can visit every order of events
// (package explore), with the code that ships.
//
// The way of a lock through the engine, and the file of each part:
//
//	acquire.go   a caller enters, waits at the gate, and asks the store as its head
//	hold.go      the store has granted: a hold, its callers, and how it is lost
//	cohort.go    a hold is handed over inside the client, without the store
//	renew.go     holds are renewed together before they end
//	release.go   the last caller of a hold releases it
//	withdraw.go  what the store may still know is withdrawn until it confirms that
package engine

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/batch"
	"github.com/holdfastlock/holdfast/internal/core/due"
)

// Config is what an engine must know of its client and store. It does not change.
type Config struct {
	Prefix     string        // in front of each name in the store
	Queue      bool          // the store queues waiters (driver.Queuer)
	Sharded    bool          // the store has parts that fail independently (driver.Sharder)
	Poll       time.Duration // driver.Caps.PollInterval
	Recalls    bool          // driver.Caps.Recalls
	TokenBlock int           // driver.Caps.TokenBlock
	Silent     bool          // nobody is to be told of News
	Traced     bool          // News of a hold name the caller that it began with

	// NewOwner returns an owner that nobody else has.
	NewOwner func() string
	// LostError returns the error of leases whose hold is lost for a reason.
	LostError func(name string, token driver.Token, reason error) error
	// UncertainRelease returns the error of a release that the store has not confirmed.
	UncertainRelease func(name string, err error) error
	// Jitter returns a random duration between half of d and d, so that clients that
	// started together do not stay together.
	Jitter func(d time.Duration) time.Duration
}

// Engine is the state. Not safe for concurrent use: package core has one mutex
// around Step.
type Engine struct {
	Config
	gates     map[string]*gate
	spare     []*gate                  // empty, to be used again
	deadlines due.Queue[*Hold]         // all holds, by the next instant at which the clock changes them
	renewals  *batch.Plan[*Hold]       // the holds to renew
	withdrawn *batch.Plan[*withdrawal] // what the store is to forget
	cohorts   due.Queue[*gate]         // the gates with a cohort, by its end
	open      int                      // withdrawals in the plan or under way
	silence   error                    // the last uncertain or failed answer; nil: the store has confirmed a withdrawal since
	closed    bool
	left      []driver.Grant // held at the Close, to be released once the work has stopped
	effects   []Effect
	now       driver.Instant // of the event that is being taken in
}

// New returns an engine that knows of nothing.
func New(c Config) *Engine {
	return &Engine{
		Config:    c,
		gates:     map[string]*gate{},
		deadlines: due.New(func(h *Hold) *due.Entry { return &h.deadline }),
		cohorts:   due.New(func(g *gate) *due.Entry { return &g.cohort.over }),
		renewals:  batch.New(renewalRules),
		withdrawn: batch.New(withdrawalRules),
	}
}

// Kind is what has happened.
type Kind uint8

// The kinds of events, and the fields that each needs beside Now.
const (
	// A caller's acquire.
	Entered   Kind = iota // Caller, Contended: it wants the name
	Woken                 // Caller: an effect has woken it while it slept or paused
	Rested                // Caller, Ended: its pause is over
	Answered              // Caller, Grant, Err, Ended: the store has answered its request
	Confirmed             // Caller, Renewal, Ended: the store has renewed its grant before it is used
	Cancelled             // Caller: its context or the client has ended while it slept, or the driver has panicked

	// A caller's lease.
	Checked   // Caller: is it still trusted?
	Joined    // Caller, Other, Mode: Other joins the hold of Caller
	Shown     // Caller: others are told which hold in the store it has
	Released  // Caller, Unused: it gives its lease back
	Stopped   // Caller: the work under its lease has ended
	GivenBack // Caller, Err: the store has answered its release

	// A caller's other requests to the store.
	RenewCalled       // Caller
	RenewAnswered     // Caller, Grant as it was sent, Renewal
	DowngradeCalled   // Caller
	DowngradeAnswered // Caller, Grant, Err

	// In the background.
	Ticked         // something is due
	ShardsFound    // Due, Shards: the shards that an effect asked for
	BatchRenewed   // Batch, Renewals
	BatchWithdrawn // Batch, Errs
	LossesTold     // Losses: the store says of owners that their holds are gone
	Closed         // the client is being closed
	WorkStopped    // after Closed: the contexts of all leases have been cancelled
)

// Event is something that has happened.
type Event struct {
	Kind   Kind
	Now    driver.Instant
	Caller *Caller

	Grant     driver.Grant
	Renewal   driver.Renewal
	Err       error // of the store
	Ended     error // of the caller's context; nil: it has not ended
	Contended bool  // the driver knows that others want the name
	Unused    bool  // nothing was done under the lease
	Other     *Caller
	Mode      driver.Mode

	Due      *Due
	Shards   []string // of Due.Requests, in their order
	Batch    *Batch
	Renewals []driver.Renewal // of Batch.Grants, in their order
	Errs     []error          // the same
	Losses   map[string]error // the reasons, by owner
}

// Do is what a caller does next.
type Do uint8

// What a caller does next, and the fields of Action that say more. After each but the last
// five its goroutine reports by the event in parentheses.
const (
	Sleep        Do = iota // until it is woken (Woken), or its context ends (Cancelled)
	Try                    // driver.Try of Grant.Request (Answered)
	Enqueue                // driver.Enqueue of Grant.Request (Answered)
	Await                  // driver.Wait of Grant.Request, for For at most (Answered, with ErrHeld if the time was over)
	Pause                  // for For, or until it is woken (Rested)
	Confirm                // driver.Renew of Grant (Confirmed)
	Stop                   // end the work under the lease (Stopped)
	GiveBack               // driver.Release of Grant, repeated for For at most (GivenBack)
	Ask                    // what the caller wanted, of Grant (RenewAnswered, DowngradeAnswered)
	RenewFirst             // RenewCalled, because the store must know the token, and then again
	Yes                    // it holds the name; is trusted; has joined; nothing else is to be done
	No                     // Err, Held, Last: it does not
	Done                   // Err: the release is over
	AwaitRelease           // another call of Release is under way
)

// Action is what the caller of an event does next.
type Action struct {
	Do    Do
	Grant driver.Grant
	For   time.Duration
	Opens time.Duration     // of Pause, if the store said that the name is held: in how long it opens by itself; 0: it did not say when
	Poll  bool              // of Pause: the store is polled after it, and may be polled later if it tells when the name is free
	Err   error             // nil after an acquire: its context or the client has ended
	Held  *driver.HeldError // the last that the store said of the holder
	Last  error             // its last error
}

// EffectKind is what is to be done for others than the event's caller.
type EffectKind uint8

// The kinds of effects, and the fields that each has.
const (
	Wake       EffectKind = iota // Caller: it sleeps or pauses, and there is news
	End                          // Caller, Err: its lease is over
	Tell                         // News: hooks and the logger hear of it
	FindShards                   // Due: ask the driver for the shards of Due.Requests
	Renew                        // Batch
	Withdraw                     // Batch: release Batch.Grants
)

// Effect is one thing to be done.
type Effect struct {
	Kind   EffectKind
	Caller *Caller
	Err    error
	News   *News
	Due    *Due
	Batch  *Batch
}

// NewsKind is what hooks are told.
type NewsKind uint8

// The kinds of news, one for each hook of holdfast.Events.
const (
	Acquired NewsKind = iota
	Waiting
	InDoubt
	Recovered
	Expiring
	Lost
	GaveBack
)

// News is what hooks are told. It tells of a hold, or of one who waits for it.
type News struct {
	Kind  NewsKind
	About *Caller // who waits, or, if Config.Traced, whose grant the hold was; else nil
	Name  string
	Mode  driver.Mode
	Token driver.Token
	After time.Duration
	Until driver.Instant // 0: it says nothing
	Err   error

	Degraded bool // driver.Grant.Degraded
}

// Step takes an event in and returns what its caller does next. What others are to do is
// in Effects.
func (e *Engine) Step(ev *Event) Action {
	e.now = ev.Now
	c := ev.Caller
	switch ev.Kind {
	case Entered:
		return e.entered(c, ev.Contended)
	case Woken:
		return e.woken(c)
	case Rested:
		return e.rested(c, ev.Ended)
	case Answered:
		return e.answered(c, ev.Grant, ev.Err, ev.Ended)
	case Confirmed:
		return e.confirmed(c, ev.Renewal, ev.Ended)
	case Cancelled:
		return e.cancelled(c)
	case Checked:
		return e.checked(c.hold)
	case Joined:
		return e.share(c, ev.Other, ev.Mode)
	case Shown:
		e.shown(c)
	case Released:
		return e.released(c, ev.Unused)
	case Stopped:
		return e.stopped(c)
	case GivenBack:
		return e.givenBack(c, ev.Err)
	case RenewCalled:
		return e.renewCalled(c)
	case RenewAnswered:
		return e.renewAnswered(c, ev.Grant.Owner, ev.Renewal)
	case DowngradeCalled:
		return e.downgradeCalled(c)
	case DowngradeAnswered:
		return e.downgradeAnswered(c, ev.Grant, ev.Err)
	case Ticked:
		e.ticked()
	case ShardsFound:
		e.send(ev.Due, ev.Shards)
	case BatchRenewed:
		e.batchRenewed(ev.Batch, ev.Renewals)
	case BatchWithdrawn:
		e.batchWithdrawn(ev.Batch, ev.Errs)
	case LossesTold:
		e.lossesTold(ev.Losses)
	case Closed:
		e.close()
	case WorkStopped:
		e.workStopped()
	}
	return Action{}
}

// Effects returns what is to be done since the last call, in order. The slice is the
// engine's own and holds until the next Step.
func (e *Engine) Effects() []Effect {
	effects := e.effects
	e.effects = e.effects[:0]
	return effects
}

func (e *Engine) effect(f Effect) { e.effects = append(e.effects, f) }

func (e *Engine) tell(n News) {
	if !e.Silent {
		e.effect(Effect{Kind: Tell, News: &n})
	}
}

// Next returns the instant at which Ticked has something to do, if there is one.
func (e *Engine) Next() (at driver.Instant, ok bool) {
	sooner := func(t driver.Instant, some bool) {
		if some && (!ok || t < at) {
			at, ok = t, true
		}
	}
	_, t, some := e.deadlines.First()
	sooner(t, some)
	sooner(e.renewals.Next())
	sooner(e.withdrawn.Next())
	_, t, some = e.cohorts.First()
	sooner(t, some)
	return at, ok
}

// Now returns the time of the last event.
func (e *Engine) Now() driver.Instant { return e.now }

// Unconfirmed returns how many releases and withdrawals the store has not confirmed.
func (e *Engine) Unconfirmed() int { return e.open }

// Idle reports whether the engine has forgotten everything (P9).
func (e *Engine) Idle() bool {
	return len(e.gates) == 0 && e.deadlines.Len() == 0 && e.cohorts.Len() == 0 &&
		e.renewals.Len() == 0 && e.withdrawn.Len() == 0 && e.open == 0
}

// ticked does what is due: it ends the leases, maximum holds and cohorts whose time is
// over, and sends off what is to be renewed and withdrawn.
func (e *Engine) ticked() {
	for h, at, ok := e.deadlines.First(); ok && at <= e.now; h, at, ok = e.deadlines.First() {
		if h.machine.Trusted(e.now) {
			e.expire(h) // from now on its entry is its trust deadline
		} else {
			e.lose(h, nil)
		}
	}
	for g, at, ok := e.cohorts.First(); ok && at <= e.now; g, at, ok = e.cohorts.First() {
		e.endCohort(g)
	}
	d := &Due{holds: e.renewals.Due(e.now), withdrawals: e.withdrawn.Due(e.now)}
	switch {
	case len(d.holds)+len(d.withdrawals) == 0:
	case e.Sharded:
		for _, h := range d.holds {
			d.Requests = append(d.Requests, e.request(h))
		}
		for _, w := range d.withdrawals {
			d.Requests = append(d.Requests, w.grant.Request)
		}
		e.effect(Effect{Kind: FindShards, Due: d})
	default:
		e.send(d, nil)
	}
}

// Due is what is due to be sent, before it is known to which shards.
type Due struct {
	Requests    []driver.Request // of the holds first
	holds       []*Hold
	withdrawals []*withdrawal
}

// Batch is what goes to the store together.
type Batch struct {
	Grants []driver.Grant // the most urgent first
	Within time.Duration  // the time that it has

	holds       []*Hold // of Grants
	renewals    batch.Batch[*Hold]
	withdrawals batch.Batch[*withdrawal]
}

// send sends off what is due, in batches.
func (e *Engine) send(d *Due, shards []string) {
	shard := func(i int) string {
		if len(shards) == 0 {
			return ""
		}
		return shards[i]
	}
	for _, b := range e.renewals.Send(e.now, d.holds, shard) {
		e.sendRenewals(b)
	}
	behind := func(i int) string { return shard(len(d.holds) + i) }
	for _, b := range e.withdrawn.Send(e.now, d.withdrawals, behind) {
		e.sendWithdrawals(b)
	}
}

// close ends all leases and refuses new callers.
func (e *Engine) close() {
	e.closed = true
	for h, _, ok := e.deadlines.First(); ok; h, _, ok = e.deadlines.First() {
		if !h.machine.Release(e.now) {
			e.lose(h, nil)
			continue
		}
		e.retire(h)
		e.tellOf(h, GaveBack, nil)
		e.left = append(e.left, e.grant(h))
		e.endAll(h, ErrReleased)
	}
}

// workStopped releases what was held at the Close: the work has ended, so another may begin.
func (e *Engine) workStopped() {
	for _, g := range e.left {
		e.withdraw(g)
	}
	e.left = nil
}
