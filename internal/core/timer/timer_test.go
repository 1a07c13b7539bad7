package timer

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/due"
)

// bubbleClock tells the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

const ms = driver.Instant(time.Millisecond)

// TestInjectedClock: in virtual time the calls are at the very instant, the
// earliest that was set.
func TestInjectedClock(t *testing.T) {
	for _, c := range []struct {
		name string
		set  []driver.Instant // all before the first call
		want driver.Instant
	}{
		{"once", []driver.Instant{5 * ms}, 5 * ms},
		{"the past is at once", []driver.Instant{-5 * ms}, 0},
		{"moved forward", []driver.Instant{5 * ms, 3 * ms}, 3 * ms},
		{"not moved back", []driver.Instant{3 * ms, 5 * ms}, 3 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := bubbleClock{time.Now()}
				var calls []driver.Instant
				a := New(clock, func() { calls = append(calls, clock.Now()) })
				for _, at := range c.set {
					a.Set(at)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if len(calls) != 1 || calls[0] != c.want {
					t.Fatalf("called at %v, want %v", calls, c.want)
				}
				// Once it has rung it can be set again, for later too.
				a.Set(clock.Now() + 4*ms)
				time.Sleep(time.Second)
				synctest.Wait()
				if len(calls) != 2 || calls[1] != 1000*ms+4*ms {
					t.Errorf("called at %v after it was set again", calls)
				}
				a.Close()
			})
		})
	}
}

// clocks are the two kinds of timers: of package time, and on Linux timerfd.
var clocks = map[string]driver.Clock{"host": driver.HostClock, "other": otherClock{}}

// otherClock is the host's, and not known to be it.
type otherClock struct{}

func (otherClock) Now() driver.Instant { return driver.HostClock.Now() }

// TestClose: a closed timer does not call, whether it was set before or after.
// The timer that is waited for instead is due after it.
func TestClose(t *testing.T) {
	for name, clock := range clocks {
		t.Run(name, func(t *testing.T) {
			called := make(chan string, 10)
			closed := New(clock, func() { called <- "closed" })
			never := New(clock, func() { called <- "never set" })
			late := New(clock, func() { called <- "late" })
			now := clock.Now()
			closed.Set(now + 20*ms)
			closed.Close()
			closed.Set(now)
			closed.Close()
			never.Close()
			never.Set(now)
			late.Set(now + 40*ms)
			if got := <-called; got != "late" {
				t.Errorf("%s: called", got)
			}
			late.Close()
			if leftover(t) {
				t.Error("a goroutine outlives its timer")
			}
		})
	}
}

// leftover reports whether a goroutine of a timer is still there after many
// chances to end.
func leftover(t *testing.T) bool {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "timer.(*timerfd).wait") {
			return false
		}
	}
	return true
}

// TestNeverTooEarly: on the host's clock too the call comes at the instant or
// after it, and does come.
func TestNeverTooEarly(t *testing.T) {
	for name, clock := range clocks {
		t.Run(name, func(t *testing.T) {
			called := make(chan driver.Instant, 1)
			a := New(clock, func() { called <- clock.Now() })
			defer a.Close()
			for _, ahead := range []time.Duration{-time.Hour, 0, 1, time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
				at := clock.Now().Add(ahead)
				a.Set(at)
				if got := <-called; got < at {
					t.Errorf("set %v ahead it came %v early", ahead, at.Sub(got))
				}
			}
		})
	}
}

// TestNoneIsMissed: many goroutines set the timer for their own instants while it
// rings for others. The function does as a client does: all that is due, and then
// the timer for the first that is left. A lost call would leave a goroutine waiting.
func TestNoneIsMissed(t *testing.T) {
	for name, clock := range clocks {
		t.Run(name, func(t *testing.T) {
			type sleeper struct {
				woken chan struct{}
				entry due.Entry
			}
			var mu sync.Mutex
			q := due.New(func(s *sleeper) *due.Entry { return &s.entry })
			var a *Timer
			a = New(clock, func() {
				mu.Lock()
				defer mu.Unlock()
				now := clock.Now()
				for s, at, ok := q.First(); ok && at <= now; s, at, ok = q.First() {
					q.Drop(s)
					close(s.woken)
				}
				if _, at, ok := q.First(); ok {
					a.Set(at)
				}
			})
			defer a.Close()
			var wg sync.WaitGroup
			for g := range uint64(8) {
				random := rand.New(rand.NewPCG(g, 0))
				wg.Go(func() {
					for range 50 {
						s := &sleeper{woken: make(chan struct{})}
						mu.Lock()
						q.Set(s, clock.Now().Add(time.Duration(random.IntN(int(time.Millisecond)))))
						_, at, _ := q.First()
						a.Set(at)
						mu.Unlock()
						select {
						case <-s.woken:
						case <-time.After(time.Minute):
							t.Error("the timer never fired")
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
