package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
)

// broken is a driver that is wrong on purpose, and where the suite must say so.
type broken struct {
	name string
	// wrap breaks a good client. It is called for each; shared is the same for
	// all of one store.
	wrap    func(good driver.Driver, shared *shared) driver.Driver
	case_   string // which finds it, maybe among others; "": what is looked at in the end
	promise string
}

// fastPoll makes the cases that wait for polls quick. Slow machines do no harm:
// what is expected here are failures.
const fastPoll = 100 * time.Millisecond

// judge runs the suite, or some of it, over drivers that wrap makes of
// memlock's and returns what it finds.
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
		h.slack = 300 * time.Millisecond // most broken drivers are waited for in vain
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
			if strings.HasPrefix(only, "client/") {
				poll *= 4 // what is left behind must be there long enough to be seen
			}
			r := judge(t, b.wrap, nil, poll, only)
			if !r.found(b.case_, b.promise) {
				t.Errorf("case %q did not find %s broken; found were: %s", b.case_, b.promise, strings.Join(r.failures, "\n"))
			}
		})
	}
}

// TestGoodDriverPasses shows that it is the break that is found, not the
// recorder or the wrapper.
func TestGoodDriverPasses(t *testing.T) {
	good := func(d driver.Driver, _ *shared) driver.Driver { return driver.Forward{Driver: d} }
	r := judge(t, good, func() {}, 4*fastPoll)
	if r.Failed() {
		t.Errorf("a good driver was found broken: %s", strings.Join(r.failures, "\n"))
	}
}
