package record

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
)

// Tombstones remember for a while, by owner, holds that were broken and requests that were
// withdrawn before they arrived. The zero value is ready. Not safe for concurrent use.
type Tombstones struct {
	m     map[string]tombstone
	sweep int // clean m when it has grown to this
}

type tombstone struct {
	err   error
	until driver.Instant
}

// Put remembers until then the error for an owner that comes back: ErrBroken, or ErrNotHeld
// for a request that was withdrawn and must not take effect (P6).
func (t *Tombstones) Put(owner string, err error, now, until driver.Instant) {
	if len(t.m) >= t.sweep {
		maps.DeleteFunc(t.m, func(_ string, s tombstone) bool { return now >= s.until })
		t.sweep = 2*len(t.m) + 64
	}
	if t.m == nil {
		t.m = map[string]tombstone{}
	}
	t.m[owner] = tombstone{err, until}
}

// Get returns the error for an owner, or nil if nothing is remembered of it.
func (t *Tombstones) Get(owner string, now driver.Instant) error {
	if s, ok := t.m[owner]; ok && now < s.until {
		return s.err
	}
	return nil
}
