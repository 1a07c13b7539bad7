package engine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/engine"
	"github.com/holdfastlock/holdfast/internal/core/lease"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/internal/record"
	"github.com/holdfastlock/holdfast/internal/test/explore"
)

// This file and steps_test.go explore the engine as it ships: one client with a few callers,
// before a store that keeps its names by the specification of internal/record, and beside a
// stranger who wants the same names. Whatever a request meets is a step of its own: it is
// sent, the store executes it, its answer arrives, or does not. Between two steps
// everything else can happen. Time passes from one instant at which anything is due to
// the next.

const (
	ms   = driver.Instant(time.Millisecond)
	ttl  = 60 * time.Millisecond
	poll = 40 * time.Millisecond
)

// wish is what a caller wants.
type wish struct {
	name    string
	mode    driver.Mode
	try     bool
	minHold time.Duration
	maxHold time.Duration
	works   time.Duration // for how long it holds the name; 0: until anything else happens, or not
}

// setup is what is explored.
type setup struct {
	wishes   []wish
	noQueue  bool // the store has no queue
	block    int  // driver.Caps.TokenBlock
	stranger bool // another client wants the first name, once
	held     bool // the stranger has it from the beginning
	patient  bool // time passes only when nothing else can happen

	budget
}

// budget is how often what can go wrong does.
type budget struct {
	cancels int // contexts that end
	losses  int // answers that do not arrive
	fails   int // requests that fail, certainly
	breaks  int // holds that an operator breaks
	closes  int // the client is closed
	lates   int // withdrawals, the store's own too, that arrive at any time later
	copies  int // how often the store's replica catches up
	forgets int // how often the replica takes over, and what it does not know is forgotten
	times   int // how often time passes; negative: without a bound
}

// phase is what a caller's goroutine does.
type phase uint8

const (
	out      phase = iota // it has not come yet
	asleep                // behind others
	sent                  // its request is on its way to the store
	replied               // the answer is on its way back
	pausing               // before it asks again
	working               // it holds the name
	stopping              // its work ends
	done                  // it has released
	failed                // it has not got the name
)

var phases = [...]string{"out", "asleep", "sent", "replied", "pausing", "working", "stopping", "done", "failed"}

// person is a caller with what its goroutine does.
type person struct {
	wish
	c         *engine.Caller
	phase     phase
	action    engine.Action
	sentAt    driver.Instant
	until     driver.Instant // the end of its pause or poll
	begun     driver.Instant // when it got the name
	reply     reply
	cancelled bool
	woken     bool // an effect has woken it, and it has not run yet
	over      bool // it was told that its lease is over
	released  int  // answers to its Release
	again     bool // it has released once more
}

// reply is what the store says.
type reply struct {
	grant   driver.Grant
	renewal driver.Renewal
	err     error
}

// operation is a batch in the background.
type operation struct {
	batch    *engine.Batch
	renew    bool
	executed bool
	renewals []driver.Renewal
	errs     []error
}

// stray is a request whose answer nobody waits for, and that may still take effect.
type stray struct {
	do     engine.Do
	grant  driver.Grant
	sentAt driver.Instant
	slow   bool // time passes before it arrives, even in a patient world
}

// world is a state.
type world struct {
	*setup
	budget
	now      driver.Instant
	e        *engine.Engine
	owners   int
	people   []*person
	names    map[string]*record.Record
	last     driver.Token              // of all names
	tokens   map[string]driver.Token   // of the last that got each name
	granted  map[string]driver.Instant // when the hold of each owner began
	refused  []string                  // owners whose requests are withdrawn
	broken   []string                  // owners whose holds are broken
	told     []string                  // those of which the store has told the client
	untold   []string                  // those of which the store will tell the client
	ops      []*operation
	strays   []stray
	arrived  []int // people in the order of their arrival, but for those who have left
	stranger phase
	closed   bool // Closed, and not yet WorkStopped

	life     int // the store's, which a fail-over ends
	memory   life.Memory
	trusting driver.Instant // the stranger trusts its hold until then
	replica  *replica       // nil: it knows nothing
	err      error
}

// replica is what the store's replica knows.
type replica struct {
	names  map[string]*record.Record
	memory life.Memory
}

func copyNames(names map[string]*record.Record) map[string]*record.Record {
	copies := make(map[string]*record.Record, len(names))
	for name, r := range names {
		copies[name] = &record.Record{Holds: slices.Clone(r.Holds), Queue: slices.Clone(r.Queue)}
	}
	return copies
}

var errStore = errors.New("the store is out of order")

func (s *setup) model() explore.Model[*world, [2]uint64] {
	w := &world{setup: s, budget: s.budget, now: 1000 * ms, names: map[string]*record.Record{}, tokens: map[string]driver.Token{}, granted: map[string]driver.Instant{}}
	w.e = engine.New(w.config())
	for i, wish := range s.wishes {
		p := &person{wish: wish, c: &engine.Caller{}}
		settings := &engine.Settings{
			Request: driver.Request{Mode: wish.mode, TTL: ttl, MinHold: wish.minHold},
			MaxHold: wish.maxHold,
			Pace:    lease.Pace{TTL: ttl, Every: ttl / 3},
		}
		p.c.Init(wish.name, settings, wish.try, i)
		w.people = append(w.people, p)
		w.names[wish.name] = &record.Record{}
	}
	if s.held {
		r, rules := w.settled(s.wishes[0].name)
		_, _ = r.Ask(driver.Request{Name: s.wishes[0].name, Owner: "stranger", TTL: ttl}, "", true, w.now, w.now, rules)
		w.stranger, w.trusting = sent, w.now.Add(ttl)
	}
	return explore.Model[*world, [2]uint64]{
		Start: w,
		Key: func(w *world) [2]uint64 {
			b := w.key()
			return [2]uint64{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
		},
		Next:  (*world).next,
		Check: (*world).check,
		End:   (*world).end,
	}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (w *world) config() engine.Config {
	return engine.Config{
		Queue: !w.noQueue, Poll: poll, TokenBlock: w.block, Silent: true,
		NewOwner: func() string { w.owners++; return fmt.Sprintf("o%d", w.owners) },
		Jitter:   func(d time.Duration) time.Duration { return d },
		LostError: func(name string, _ driver.Token, reason error) error {
			return fmt.Errorf("%s is lost: %w", name, reason)
		},
		UncertainRelease: func(_ string, err error) error { return driver.Uncertain(err) },
	}
}

// clone copies a world.
func (w *world) clone() *world {
	c := *w
	e, copies := w.e.Clone()
	c.e = e
	config := c.config()
	e.NewOwner = config.NewOwner
	c.people = make([]*person, len(w.people))
	for i, p := range w.people {
		twin := *p
		twin.c = copies.Caller(p.c)
		c.people[i] = &twin
	}
	c.names = copyNames(w.names)
	c.refused, c.broken, c.untold, c.told = slices.Clone(w.refused), slices.Clone(w.broken), slices.Clone(w.untold), slices.Clone(w.told)
	c.strays, c.arrived = slices.Clone(w.strays), slices.Clone(w.arrived)
	c.ops = make([]*operation, len(w.ops))
	for i, op := range w.ops {
		twin := *op
		twin.batch = copies.Batch(op.batch)
		c.ops[i] = &twin
	}
	return &c
}

// key is what tells a world from others.
func (w *world) key() []byte {
	number := func(c *engine.Caller) int { return c.Ref.(int) }
	k := &writer{now: w.now}
	k.num(w.cancels, w.losses, w.fails, w.breaks, w.closes, w.lates, w.times, w.copies, w.forgets, int(w.stranger))
	if w.setup.forgets > 0 {
		k.flags(w.memory.Life == w.present(), w.replica != nil, w.replica != nil && w.replica.memory.Life == w.present())
		k.num(int(max(0, w.memory.Opens.Sub(w.now))), int(max(0, w.trusting.Sub(w.now))))
		if w.replica != nil {
			for _, name := range [...]string{"a", "b"} {
				if r := w.replica.names[name]; r != nil {
					k.record(r)
				}
			}
		}
	}
	k.flags(w.closed, w.err != nil)
	k.num(w.arrived...)
	k.texts(w.refused)
	k.texts(w.broken)
	k.texts(w.untold)
	k.texts(w.told)
	for _, p := range w.people {
		k.num(int(p.phase), p.released)
		k.flags(p.cancelled, p.woken, p.over, p.again)
		switch p.phase {
		case sent:
			k.num(int(p.action.Do), p.action.Grant.Tokens)
			k.grant(&p.action.Grant)
			k.at(p.sentAt, p.until)
		case replied:
			k.num(int(p.action.Do))
			k.grant(&p.action.Grant)
			k.grant(&p.reply.grant)
			k.renewal(&p.reply.renewal)
			k.err(p.reply.err)
		case pausing:
			k.at(p.until)
		case working:
			if p.works > 0 {
				k.at(p.begun)
			}
		}
		if p.phase != out {
			k.b = w.e.AppendCaller(k.b, p.c, w.now, number)
		}
	}
	for _, name := range [...]string{"a", "b"} {
		if r := w.names[name]; r != nil {
			k.record(r)
		}
	}
	for _, op := range w.ops {
		k.flags(op.renew, op.executed)
		k.num(int(op.batch.Within))
		for i := range op.batch.Grants {
			k.grant(&op.batch.Grants[i])
		}
		for i := range op.renewals {
			k.renewal(&op.renewals[i])
		}
		for _, err := range op.errs {
			k.err(err)
		}
	}
	for i := range w.strays {
		k.num(int(w.strays[i].do))
		k.flags(w.strays[i].slow)
		k.grant(&w.strays[i].grant)
	}
	return w.e.AppendState(k.b, w.now, number)
}

// writer appends what makes up a key. Instants are counted from now.
type writer struct {
	b   []byte
	now driver.Instant
}

func (k *writer) num(ns ...int) {
	for _, n := range ns {
		k.b = binary.AppendVarint(k.b, int64(n))
	}
	k.b = append(k.b, 0xff)
}

func (k *writer) at(ts ...driver.Instant) {
	for _, t := range ts {
		k.num(int(t - k.now))
	}
}

func (k *writer) flags(flags ...bool) {
	for _, f := range flags {
		if f {
			k.b = append(k.b, 1)
		} else {
			k.b = append(k.b, 0)
		}
	}
}

func (k *writer) texts(texts []string) {
	for _, t := range texts {
		k.b = append(append(k.b, t...), 0)
	}
	k.b = append(k.b, 0xff)
}

// err tells apart what the engine does.
func (k *writer) err(err error) {
	k.flags(err != nil, errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrUncertain), driver.Gone(err))
}

func (k *writer) grant(g *driver.Grant) {
	k.texts([]string{g.Owner})
	k.num(int(g.Token), g.Block, int(g.Since-k.now), int(g.Valid))
	k.flags(g.Stray, g.HandedOver, g.Contended)
}

func (k *writer) renewal(r *driver.Renewal) {
	k.at(r.Since)
	k.num(int(r.Valid))
	k.err(r.Err)
}

func (k *writer) record(r *record.Record) {
	for i := range r.Holds {
		h := &r.Holds[i]
		k.texts([]string{h.Owner})
		k.num(int(h.Mode), int(h.Token), int(h.Last))
		k.flags(h.Claim, h.Closed)
		k.at(h.Expires, h.Since)
	}
	for i := range r.Queue {
		p := &r.Queue[i]
		k.texts([]string{p.Owner})
		k.num(p.Tokens)
		k.at(p.Until, p.Asked)
	}
	k.b = append(k.b, '|')
}
