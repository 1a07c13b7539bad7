package redislock

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
)

// setnxGuarantees are those of the layout SetNX, from those of the other layout. What a fault does is the
// same where the same server keeps the lock; but a guard refuses stale holders of Holdfast only.
func setnxGuarantees(of driver.Guarantees) driver.Guarantees {
	g := driver.Guarantees{
		Summary: of.Summary + " And all programs that use the key: one that deletes or extends it without comparing the value first frees or keeps another's lock.",
		Tokens:  "As without a layout, among the holders of Holdfast only. Holders of other programs have no tokens, so no guard can refuse them.",
		Faults:  maps.Clone(of.Faults),
	}
	for fault, note := range map[driver.Fault]string{
		driver.ClientPause:  "after a pause of the process a goroutine that does not look at its lease may act beside the next holder; a guard refuses it by its token, but no stale holder of another program",
		driver.Partition:    "the holder stops trusting before the store lets the next one in. Other programs may not know when to stop",
		driver.ClockForward: "locks end early by as much as the server's clock is set forward, and Holdfast's holders notice at their next renewal: let it be slewed",
		driver.ClockBack:    "locks of the dead end late by as much. Tokens grow, unless a name is forgotten, no sooner than ten minutes after its last use, and the clock is then set back to before that use",
	} {
		v := g.Faults[fault]
		if fault == driver.Partition && v.Exclusion == driver.Breaks {
			continue // of more than one server: what is said of those holds here too
		}
		v.Note = note
		g.Faults[fault] = v
	}
	return g
}
