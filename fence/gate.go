package fence

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// marks are the highest tokens that a resource has admitted; 0: none yet.
type marks struct{ exclusive, shared driver.Token }

// admit returns the marks after the token's admission, or the marks as they were and a *StaleError. The token
// and mode have been checked.
func (m marks) admit(token driver.Token, mode driver.Mode) (marks, error) {
	newest := m.exclusive
	if mode == driver.Exclusive {
		newest = max(newest, m.shared)
	}
	if token < newest {
		return m, &StaleError{Token: token, Mode: mode, Mark: newest}
	}
	if mode == driver.Exclusive {
		m.exclusive = token
	} else {
		m.shared = max(m.shared, token)
	}
	return m, nil
}

// Gate guards one resource that lives as long as the process: a cache, a device, a connection. The zero value
// is ready and has admitted nothing. A Gate is safe for concurrent use and must not be copied after its first
// use.
//
// A gate forgets its marks when the process ends. A resource that outlives the process needs a guard that
// outlives it too, such as [AdmitTx].
type Gate struct {
	work  sync.RWMutex // held over the work of Do
	mu    sync.Mutex
	marks marks
}

// Admit adopts the token, or refuses it with a *StaleError ([ErrStale]), [ErrNoToken] or [ErrInvalid]. Call
// it at the first touch of the resource and at each one after that, reads included.
//
// Nothing keeps a newer token from being admitted between Admit's return and the touch itself: hold a lock of
// your own over both, or use [Gate.Do].
func (g *Gate) Admit(token driver.Token, mode driver.Mode) error {
	if err := checkToken(token, mode); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	admitted, err := g.marks.admit(token, mode)
	g.marks = admitted
	return err
}

// Do admits the token and runs work as one step: meanwhile the gate runs no other work, except that of
// several shared tokens at the same time. It returns Admit's error without running work, or the error of
// work.
//
// Keep work short, and do not let it wait for a client, because a newer holder waits until it returns. Work
// that calls Do of the same gate deadlocks.
func (g *Gate) Do(token driver.Token, mode driver.Mode, work func() error) error {
	if mode == driver.Shared {
		g.work.RLock()
		defer g.work.RUnlock()
	} else {
		g.work.Lock()
		defer g.work.Unlock()
	}
	if err := g.Admit(token, mode); err != nil {
		return err
	}
	return work()
}

// Marks returns the highest exclusive and the highest shared token admitted so far, for metrics and logs; 0:
// none.
func (g *Gate) Marks() (exclusive, shared driver.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.marks.exclusive, g.marks.shared
}

// raises reports whether the token would be admitted and would raise a mark. It adopts nothing.
func (g *Gate) raises(token driver.Token, mode driver.Mode) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	after, err := g.marks.admit(token, mode)
	return err == nil && after != g.marks
}

// Gates is a set of gates by the names of their resources, made as they are needed. The zero value is ready.
// It is safe for concurrent use and must not be copied after its first use.
//
// A gate takes about 200 bytes and its name, and is kept for ever unless Retain says otherwise. A mark may be
// forgotten only when no work under an older token can arrive any more: afterwards the first token is
// admitted, even that of a holder which was paused all the time.
type Gates struct {
	// Retain is the least time for which an unused gate is kept; it may be kept for up to twice that. It must be
	// longer than any pause, retry, queue and running piece of work of a client can be: days rather than
	// minutes. A gate is in use while the work of Do runs. The time that the host is suspended does not count.
	// 0, or less, keeps every gate for ever. It must not be changed after the first use.
	Retain time.Duration

	mu      sync.Mutex
	recent  map[string]*Gate // used since rotated
	older   map[string]*Gate // used in the Retain before that, not since
	rotated time.Time
	busy    map[string]*busyGate // those whose Do is under way
}

// busyGate is a gate with the number of calls of Do that use it.
type busyGate struct {
	gate  *Gate
	calls int
}

// Admit is [Gate.Admit] of the resource's gate. Its *StaleError names the resource.
func (g *Gates) Admit(resource string, token driver.Token, mode driver.Mode) error {
	if err := checkUse(resource, token, mode); err != nil {
		return err
	}
	return named(resource, g.gate(resource).Admit(token, mode))
}

// Do is [Gate.Do] of the resource's gate. Its *StaleError names the resource.
func (g *Gates) Do(resource string, token driver.Token, mode driver.Mode, work func() error) error {
	if err := checkUse(resource, token, mode); err != nil {
		return err
	}
	gate, ran := g.begin(resource), false
	defer g.end(resource)
	err := gate.Do(token, mode, func() error {
		ran = true
		return work()
	})
	if ran {
		return err // of work, even if it is another guard's refusal
	}
	return named(resource, err)
}

// gate returns the resource's gate and marks it as used now.
func (g *Gates) gate(resource string) *Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gateLocked(resource)
}

func (g *Gates) gateLocked(resource string) *Gate {
	g.rotateLocked()
	gate := g.foundLocked(resource)
	if gate == nil {
		gate = new(Gate)
	}
	g.recent[resource] = gate
	return gate
}

// foundLocked returns the resource's gate, or nil.
func (g *Gates) foundLocked(resource string) *Gate {
	if b := g.busy[resource]; b != nil {
		return b.gate
	}
	if gate := g.recent[resource]; gate != nil {
		return gate
	}
	return g.older[resource]
}

// begin returns the resource's gate, which is kept until end: a second gate would let a second piece of work
// run beside this one.
func (g *Gates) begin(resource string) *Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.gateLocked(resource)
	if g.busy == nil {
		g.busy = map[string]*busyGate{}
	}
	b := g.busy[resource]
	if b == nil {
		b = &busyGate{gate: gate}
		g.busy[resource] = b
	}
	b.calls++
	return gate
}

// end marks the gate as used once more.
func (g *Gates) end(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gateLocked(resource)
	if b := g.busy[resource]; b.calls > 1 {
		b.calls--
	} else {
		delete(g.busy, resource)
	}
}

// raises is [Gate.raises] of the resource's gate. It makes no gate, so that a token that turns out to be
// forged leaves nothing behind.
func (g *Gates) raises(resource string, token driver.Token, mode driver.Mode) bool {
	g.mu.Lock()
	gate := g.foundLocked(resource)
	g.mu.Unlock()
	return gate == nil || gate.raises(token, mode)
}

// rotateLocked forgets gates that nobody has used for Retain. It forgets a whole generation at a time, so
// that its cost does not grow with their number.
func (g *Gates) rotateLocked() {
	if g.recent == nil {
		g.recent, g.rotated = make(map[string]*Gate), time.Now()
	}
	if g.Retain <= 0 {
		return
	}
	switch idle := time.Since(g.rotated); {
	case idle < g.Retain:
		return
	case idle < 2*g.Retain:
		g.older = g.recent
	default:
		g.older = nil
	}
	g.recent, g.rotated = make(map[string]*Gate), time.Now()
}

// named puts the resource's name into a *StaleError.
func named(resource string, err error) error {
	if stale, ok := errors.AsType[*StaleError](err); ok {
		stale.Resource = resource
	}
	return err
}
