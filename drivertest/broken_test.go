package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// broken is a driver that is wrong on purpose, and the case that must find it.
type broken struct {
	name string
	// wrap returns a broken client around a good one. Shared is the same for all clients of
	// one store.
	wrap    func(good driver.Driver, shared *shared) driver.Driver
	case_   string // must find it, others may too; "": the checks after the last case must
	promise string
}

// fastPoll makes cases quick that wait for polls. A slow machine does no harm, because
// failures are expected here.
const fastPoll = 100 * time.Millisecond

// judge runs the suite, or some cases of it, over drivers that wrap makes of memlock's, and
// returns their failures.
func judge(t *testing.T, wrap func(driver.Driver, *shared) driver.Driver, restart func(), poll time.Duration, only ...string) *recorder {
	store := memlock.NewStore(&memlock.Options{Poll: poll})
	state := &shared{}
	r := &recorder{TB: t, name: t.Name()}
	h := Harness{
		Open: func(testing.TB) driver.Driver { return wrap(store.Client(), state) },
		Transport: func(testing.TB) (driver.Driver, Transport) {
			wire := chaos.New(store.Client(), chaos.Options{})
			return wrap(wire, state), InProcess(wire)
		},
		Advance:    func(_ testing.TB, d time.Duration) { store.Advance(d) },
		Operations: 3000, Seed: 1,
	}
	if poll == fastPoll {
		h.slack = 300 * time.Millisecond // most cases wait for what a broken driver never does
	}
	if restart != nil {
		h.Restart = func(testing.TB) { restart() }
	}
	defer r.cleanUp()
	runOn(r, h, only...)
	return r
}

func TestBrokenDriversAreCaught(t *testing.T) {
	for _, b := range brokenDrivers {
		t.Run(b.name, func(t *testing.T) {
			only := b.case_
			if only == "" {
				only = "exclusive/one holder" // anything that uses the driver
			}
			poll := fastPoll
			switch {
			case strings.HasPrefix(only, "client/"), strings.HasPrefix(only, "transport/"):
				poll *= 4 // what a driver leaves behind must be there long enough to be found
			case strings.HasPrefix(only, "goroutines/"):
				poll *= 20 // between two polls no waiter waits: all are to wait while they are counted
			}
			r := judge(t, b.wrap, nil, poll, only)
			if !r.found(b.case_, b.promise) {
				t.Errorf("case %q did not find %s broken; found were: %s", b.case_, b.promise,
					strings.Join(r.failures, "\n"))
			}
		})
	}
}

// TestGoodDriverPasses shows that neither the recorder nor the wrapper makes a driver fail.
func TestGoodDriverPasses(t *testing.T) {
	good := func(d driver.Driver, _ *shared) driver.Driver { return driver.Forward{Driver: d} }
	r := judge(t, good, func() {}, 4*fastPoll)
	if r.Failed() {
		t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
	}
}
