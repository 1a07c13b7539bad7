package etcdlock

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// lateness is how late etcd ends a lease: it counts in whole seconds, looks every
// half of one, and ends a thousand a second.
const lateness = 2 * time.Second

// verdict is one under which tokens keep growing.
func verdict(exclusion driver.Effect, note string) driver.Verdict {
	return driver.Verdict{Exclusion: exclusion, Tokens: driver.Keeps, Note: note}
}

var guarantees = driver.Guarantees{
	Summary:  "The consensus of a majority of etcd's members, and its leader's monotonic clock.",
	Lateness: lateness,
	Tokens:   "etcd's revision, which every change of the store increases; it survives everything but the loss of the data or a backup that is restored without --bump-revision.",
	Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
		driver.ClientCrash:  verdict(driver.Keeps, "the holds of a client that died end with their TTL and lock-delay, or with their minimum hold if that is later, its places in queues with etcd's shortest lease"),
		driver.ClientPause:  verdict(driver.Breaks, "after a pause of the process a goroutine that does not look at its lease may act beside the next holder: guard the resource with the token, data in the same etcd with etcdlock.Compare"),
		driver.StorePause:   verdict(driver.Breaks, "another member takes over from a leader that stands still. When that one goes on, etcd may have it end leases that its successor has extended: guard the resource with the token, or run a cell. On one member the TTL runs on"),
		driver.StoreRestart: verdict(driver.Delays, "everything acknowledged is on disk; a leader that starts gives every lease its whole TTL, or its minimum hold, again"),
		driver.StoreWiped:   {Exclusion: driver.Breaks, Tokens: driver.Breaks, Note: "a cluster that is made anew knows no holds, and its revision begins again: use another prefix, and raise what guards remember. One member of three may lose its data and be replaced"},
		driver.Failover:     verdict(driver.Delays, "a new leader knows all that was acknowledged, and gives every lease its whole TTL, or its minimum hold, again: a dead holder's name opens later by as much at most"),
		driver.ClockForward: verdict(driver.Keeps, "leases run by a clock that cannot be set"),
		driver.ClockBack:    verdict(driver.Keeps, "leases run by a clock that cannot be set"),
		driver.DiskFull:     verdict(driver.Keeps, "beyond its quota etcd refuses new holds and places; holds are renewed and released all the same, except that a hold handed over by the queue ends unless it was renewed before"),
	}),
}
