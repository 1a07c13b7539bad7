package record

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
)

// Farewells remembers for a while, by owner, holds that were broken and
// requests that were withdrawn before they arrived. The zero value is ready.
// Not safe for concurrent use.
type Farewells struct {
	m     map[string]farewell
	sweep int // clean m when it has grown to this
}

type farewell struct {
	err   error
	until driver.Instant
}

// Say remembers until then what to tell an owner that comes back: ErrBroken, or
// ErrNotHeld for a request that was withdrawn and must not take effect (P6).
func (f *Farewells) Say(owner string, err error, now, until driver.Instant) {
	if len(f.m) >= f.sweep {
		maps.DeleteFunc(f.m, func(_ string, w farewell) bool { return now >= w.until })
		f.sweep = 2*len(f.m) + 64
	}
	if f.m == nil {
		f.m = map[string]farewell{}
	}
	f.m[owner] = farewell{err, until}
}

// To returns what is remembered of an owner, or nil.
func (f *Farewells) To(owner string, now driver.Instant) error {
	if w, ok := f.m[owner]; ok && now < w.until {
		return w.err
	}
	return nil
}
