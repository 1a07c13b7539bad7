package holdfast

import "github.com/holdfastlock/holdfast/driver"

// Types of package driver that users of locks need too.
type (
	// Token is a fencing token, an int64 that grows with every new hold on a name (P3). 0: the
	// store gives none.
	Token = driver.Token
	// Mode says how a lease holds its name: Exclusive, Shared or Slot.
	Mode = driver.Mode
	// Caps says what a store can do, and in Guarantees what remains of the promises when things
	// go wrong. The fields are shown by go doc driver.Caps.
	Caps = driver.Caps
	// Info is the state of one name, for operators: its holders and waiters. The fields are shown
	// by go doc driver.Info.
	Info = driver.Info
)

// The modes of a lease.
const (
	Exclusive = driver.Exclusive
	Shared    = driver.Shared
	Slot      = driver.Slot
)
