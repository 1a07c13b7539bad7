package fence

import (
	"sync"

	"github.com/holdfastlock/holdfast/driver"
)

// marks are the highest tokens that a resource has admitted; 0: none yet.
type marks struct{ exclusive, shared driver.Token }

// admit returns the marks after the token's admission, or the marks as they
// were and a *StaleError. The token and mode have been checked.
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

// Gate guards one resource that lives as long as the process: a cache, a
// device, a connection. The zero value is ready and has admitted nothing. A
// Gate is safe for concurrent use and must not be copied after its first use.
//
// A gate forgets its marks when the process ends. A resource that outlives the
// process needs a guard that outlives it too, such as a [Dialect]'s.
type Gate struct {
	work  sync.RWMutex // held over the work of Do
	mu    sync.Mutex
	marks marks
}

// Admit adopts the token, or refuses it with a *StaleError ([ErrStale]),
// [ErrNoToken] or [ErrInvalid]. Call it at the first touch of the resource and
// at each one after that, reads included.
//
// Nothing keeps a newer token from being admitted between Admit's return and
// the touch itself: hold a lock of your own over both, or use [Gate.Do].
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

// Do admits the token and runs work as one step: meanwhile the gate runs no other
// work, except that of several shared tokens at the same time. It returns Admit's
// error without running work, or the error of work.
//
// Keep work short, and do not let it wait for a client, because a newer holder
// waits until it returns. Work that calls Do of the same gate deadlocks.
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

// Marks returns the highest exclusive and the highest shared token admitted so
// far, for metrics and logs; 0: none.
func (g *Gate) Marks() (exclusive, shared driver.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.marks.exclusive, g.marks.shared
}

// raises reports whether the token would be admitted and would raise a mark.
// It adopts nothing.
func (g *Gate) raises(token driver.Token, mode driver.Mode) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	after, err := g.marks.admit(token, mode)
	return err == nil && after != g.marks
}
