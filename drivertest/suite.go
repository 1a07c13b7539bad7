package drivertest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// suite is one run over one store.
type suite struct {
	h      Harness
	caps   driver.Caps
	able   abilities
	clock  driver.Clock
	seed   uint64
	prefix string        // of every name of this run, so that runs can share a store
	poll   time.Duration // Caps.PollInterval
	ttl    time.Duration // of holds that are to expire
	long   time.Duration // of holds that are not to expire
	slack  time.Duration // how long a step may take that needs no time but on a loaded machine or a real network

	advanced atomic.Int64 // nanoseconds by which the store's time was moved
}

func newSuite(t testing.TB, h Harness) *suite {
	t.Helper()
	if h.Open == nil {
		t.Fatal("drivertest: Harness.Open is required")
	}
	d := h.Open(t)
	caps := d.Caps()
	if err := d.Close(); err != nil {
		t.Fatalf("P9: Close of an unused client: %v", err)
	}
	s := &suite{
		h: h, caps: caps, able: abilitiesOf(d), clock: driver.HostClock, poll: caps.PollInterval(),
		prefix: fmt.Sprintf("drivertest-%016x/", rand.Uint64()),
		seed:   cmp.Or(h.Seed, rand.Uint64()),
		ttl:    cmp.Or(h.TTL, max(caps.MinTTL, 400*time.Millisecond)),
		slack:  2 * time.Second,
	}
	s.long = max(caps.MinTTL, 30*time.Second, s.ttl)
	if h.Untimed {
		s.long, s.slack = max(caps.MinTTL, 5*time.Minute, s.ttl), time.Minute
	}
	if caps.MaxTTL != 0 {
		s.long = min(s.long, caps.MaxTTL)
	}
	s.slack = cmp.Or(h.slack, s.slack)
	s.checkExcept(t)
	t.Logf("drivertest: store %q, seed %d", caps.Store, s.seed)
	return s
}

// checkExcept fails the test if Harness.Except has what is no case.
func (s *suite) checkExcept(t testing.TB) {
	known := map[string]bool{}
	for _, th := range s.themes() {
		for _, c := range th.cases {
			known[th.name+"/"+c.name] = true
			for _, k := range c.kinds {
				known[th.name+"/"+c.name+k.suffix()] = true
			}
		}
	}
	for _, name := range s.h.Except {
		if !known[name] {
			t.Fatalf("drivertest: Harness.Except has %q, which is no case", name)
		}
	}
}

// testCase is one case. A driver that lacks what the case needs does not run it.
type testCase struct {
	name  string
	need  abilities // without which there is nothing to test
	kinds []kind    // runs once with each of these that the driver has, on a name of its own

	time   bool // lets the store's time pass: where Harness.Advance does that, no other case may run beside it
	timed  bool // judges by how long something takes: Harness.Untimed leaves it out
	serial bool // counts what the whole process has: no other case may run beside it

	// One of these is set. It gets clients of the store, which are closed when the case ends.
	run   func(t *trial, a, b driver.Driver)
	wired func(t *trial, d driver.Driver, wire Transport, b driver.Driver) // d is behind the transport
	alone func(t *trial)
}

// theme is the cases about one thing.
type theme struct {
	name  string
	cases []testCase
}

// themes returns all cases.
func (s *suite) themes() []theme {
	themes := []theme{
		{"guarantees", guaranteesCases}, {"names", namesCases},
		{"exclusive", exclusiveCases}, {"shared", sharedCases}, {"slots", slotsCases},
		{"mismatch", mismatchCases}, {"read-write", readWriteCases},
		{"queue", queueCases}, {"fairness", fairnessCases}, {"contention", contentionCases},
		{"renew", renewCases}, {"release", releaseCases}, {"withdrawal", withdrawalCases},
		{"expiry", expiryCases}, {"delays", delaysCases}, {"tokens", tokensCases},
		{"inspect", inspectCases}, {"watch", watchCases}, {"breaks", breaksCases}, {"downgrade", downgradeCases},
		{"faults", faultsCases}, {"concurrency", concurrencyCases}, {"history", historyCases},
		{"leaks", leaksCases},
	}
	if s.h.Transport != nil {
		themes = append(themes, theme{"transport", slices.Concat(lateCases, unansweredCases, deafCases, connectionsCases)})
	}
	if s.h.Restart != nil {
		themes = append(themes, theme{"restart", restartCases})
	}
	return themes
}

// run runs the themes and cases that are named, or all: first, one by one, the cases beside which no other may run,
// then the others at the same time.
func (s *suite) run(st stage, only ...string) {
	type job struct {
		name string
		c    testCase
	}
	var serial, together []job
	for _, th := range s.themes() {
		for _, c := range th.cases {
			j := job{th.name + "/" + c.name, c}
			if len(only) > 0 && !slices.Contains(only, th.name) && !slices.Contains(only, j.name) ||
				slices.Contains(s.h.Except, j.name) || c.timed && s.h.Untimed || !s.can(c.need) {
				continue
			}
			if c.serial || (c.time && s.h.Advance != nil) || th.name == "restart" {
				serial = append(serial, j)
			} else {
				together = append(together, j)
			}
		}
	}
	for _, j := range serial {
		st.sub(j.name, func(t testing.TB) { s.perform(t, j.name, j.c) })
	}
	limit := make(chan struct{}, cmp.Or(s.h.Parallel, 16))
	var wg sync.WaitGroup
	for _, j := range together {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			st.sub(j.name, func(t testing.TB) { s.perform(t, j.name, j.c) })
		})
	}
	wg.Wait()
}

// can reports whether the driver has all of these abilities.
func (s *suite) can(all abilities) bool { return s.able&all == all }

// perform runs one case.
func (s *suite) perform(tb testing.TB, title string, c testCase) {
	ctx, cancel := context.WithTimeout(context.Background(), s.caseTimeout())
	tb.Cleanup(cancel)
	t := &trial{TB: tb, suite: s, ctx: ctx, name: s.freshName(), title: titled + title}
	if c.kinds != nil {
		t.eachKind(c)
	} else {
		t.perform(c)
	}
}

// perform runs the case with its clients.
func (t *trial) perform(c testCase) {
	switch {
	case c.run != nil:
		c.run(t, t.open(), t.open())
	case c.wired != nil:
		d, wire := t.wired()
		c.wired(t, d, wire, t.open())
	default:
		c.alone(t)
	}
}

// titled begins the note of every hold.
const titled = "drivertest: "

// patience is how long a driver may need to connect again.
func (s *suite) patience() time.Duration { return max(15*time.Second, s.slack) }

// caseTimeout bounds one case, which may wait for several steps.
func (s *suite) caseTimeout() time.Duration { return max(2*time.Minute, 8*s.slack) }

func (s *suite) freshName() string { return fmt.Sprintf("%s%016x", s.prefix, rand.Uint64()) }

// abilities are what a driver can do beyond the core: a bit for each optional interface and for what Caps list.
type abilities uint

const (
	opQueue abilities = 1 << iota
	opNotify
	opShard
	opOperator
	opDowngrade
	opWatch
	opFair
	opFencing
	opShared
	opSlots
	opBlocks // reserves tokens for local hand-over
)

func abilitiesOf(d driver.Driver) (can abilities) {
	n, notifies := driver.As[driver.Notifier](d)
	c := d.Caps()
	for ability, has := range map[abilities]bool{
		opQueue: is[driver.Queuer](d), opNotify: notifies && n.Losses() != nil, opShard: is[driver.Sharder](d),
		opOperator: is[driver.Operator](d), opDowngrade: is[driver.Downgrader](d), opWatch: is[driver.Watcher](d),
		opFair: c.Fair, opFencing: c.Fencing, opShared: c.Shared, opSlots: c.Slots, opBlocks: c.TokenBlock > 1,
	} {
		if has {
			can |= ability
		}
	}
	return can
}

func is[T any](d driver.Driver) bool {
	_, ok := driver.As[T](d)
	return ok
}
