package drivertest

import (
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
	can    abilities
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
		h: h, caps: caps, can: abilitiesOf(d), clock: h.Clock, seed: h.Seed, poll: caps.PollInterval(),
		prefix: fmt.Sprintf("drivertest-%016x/", rand.Uint64()),
		ttl:    max(caps.MinTTL, 400*time.Millisecond),
		long:   max(caps.MinTTL, 30*time.Second),
		slack:  2 * time.Second,
	}
	if h.Untimed {
		s.long, s.slack = max(caps.MinTTL, 5*time.Minute), time.Minute
	}
	if s.clock == nil {
		s.clock = driver.HostClock
	}
	if h.TTL != 0 {
		s.ttl = h.TTL
	}
	if h.slack != 0 {
		s.slack = h.slack
	}
	for _, name := range h.Except {
		if !slices.ContainsFunc(s.themes(), func(th theme) bool {
			return slices.ContainsFunc(th.cases, func(c testCase) bool {
				of, title := func(k kind) bool { return th.name+"/"+c.name+k.suffix() == name }, th.name+"/"+c.name
				return title == name || slices.ContainsFunc(c.kinds, of)
			})
		}) {
			t.Fatalf("drivertest: Harness.Except has %q, which is no case", name)
		}
	}
	s.long = max(s.long, s.ttl)
	if caps.MaxTTL != 0 {
		s.long = min(s.long, caps.MaxTTL)
	}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	t.Logf("drivertest: store %q, seed %d", caps.Store, s.seed)
	return s
}

// testCase is one case. If the driver lacks what the case needs, the case asserts instead
// that the driver refuses it.
type testCase struct {
	name string
	need needs // without which there is nothing to test
	time bool  // lets the store's time pass: where Harness.Advance does that, no other case may run beside it

	timed bool // judges by how long something takes: Harness.Untimed leaves it out

	kinds []kind // runs once with each of these that the driver has, on a name of its own

	serial bool // counts what the whole process has: no other case may run beside it
	run    func(*trial)
}

// theme is the cases of one file.
type theme struct {
	name  string
	cases []testCase
}

// themes returns all cases.
func (s *suite) themes() []theme {
	themes := []theme{
		{"guarantees", guaranteesCases},
		{"exclusive", exclusiveCases},
		{"shared", sharedCases},
		{"slots", slotsCases},
		{"queue", queueCases},
		{"fairness", fairnessCases},
		{"contention", contentionCases},
		{"renew", renewCases},
		{"release", releaseCases},
		{"withdrawal", withdrawalCases},
		{"tokens", slices.Concat(tokensCases, blocksCases)},
		{"raise", raiseCases},
		{"expiry", expiryCases},
		{"delays", delaysCases},
		{"names", namesCases},
		{"mismatch", mismatchCases},
		{"read-write", readWriteCases},
		{"inspect", inspectCases},
		{"breaks", breaksCases},
		{"downgrade", downgradeCases},
		{"watch", watchCases},
		{"faults", faultsCases},
		{"concurrency", concurrencyCases},
		{"history", historyCases},
		{"client", clientCases},
		{"leaks", leaksCases},
		{"goroutines", goroutinesCases},
	}
	if s.h.Transport != nil {
		themes = append(themes,
			theme{"transport", slices.Concat(lateCases, unansweredCases, deafCases, connectionsCases)})
	} else {
		themes = append(themes, theme{"local", localCases})
	}
	if s.h.Restart != nil {
		themes = append(themes, theme{"restart", restartCases})
	}
	return themes
}

// run runs the themes and cases that are named, or all: first, one by one, the cases beside
// which no other may run, then the others at the same time.
func (s *suite) run(st stage, only ...string) {
	type job struct {
		name string
		c    testCase
	}
	var serial, together []job
	for _, th := range s.themes() {
		for _, c := range th.cases {
			j := job{th.name + "/" + c.name, c}
			if len(only) > 0 && !slices.Contains(only, th.name) && !slices.Contains(only, j.name) || !s.applies(&j.c) {
				continue
			}
			if slices.Contains(s.h.Except, j.name) || c.timed && s.h.Untimed {
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
	limit := make(chan struct{}, max(1, s.parallel()))
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

func (s *suite) parallel() int {
	if s.h.Parallel > 0 {
		return s.h.Parallel
	}
	return 16
}

// applies reports whether a case asserts anything of this driver. If the driver lacks
// a mode, applies replaces the case by the assertion that the driver refuses it; without an ability,
// fairness, tokens or blocks of them there is nothing to refuse.
func (s *suite) applies(c *testCase) bool {
	need := c.need
	if !s.can.has(need.can) || (need.Fair && !s.caps.Fair) || (need.Fencing && !s.caps.Fencing) || need.TokenBlock > s.caps.TokenBlock {
		return false
	}
	if need.Shared && !s.caps.Shared {
		c.kinds, c.run = nil, func(t *trial) { t.refusesMode(t.shared()) }
	} else if need.Slots && !s.caps.Slots {
		c.kinds, c.run = nil, func(t *trial) { t.refusesMode(t.slot(2, 1)) }
	}
	return true
}

// perform runs one case.
func (s *suite) perform(tb testing.TB, title string, c testCase) {
	ctx, cancel := context.WithTimeout(context.Background(), s.caseTimeout())
	tb.Cleanup(cancel)
	t := &trial{TB: tb, suite: s, ctx: ctx, name: s.freshName(), title: titled + title}
	if c.kinds != nil {
		t.eachKind(c)
	} else {
		c.run(t)
	}
}

// titled begins the note of every hold.
const titled = "drivertest: "

// caseTimeout bounds one case, which may wait for several steps.
func (s *suite) caseTimeout() time.Duration { return max(2*time.Minute, 8*s.slack) }

func (s *suite) freshName() string { return fmt.Sprintf("%s%016x", s.prefix, rand.Uint64()) }
