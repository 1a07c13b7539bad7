package driver

import (
	"maps"
	"time"
)

// Guarantees says what remains of the promises in one store when things go wrong. The documentation is
// generated from it, and the fault tests assert it both ways: a promise that is kept holds, and one that is not
// kept is shown broken.
type Guarantees struct {
	// Summary says in one sentence what the store's locks rest on.
	Summary string
	// Lateness is how much longer than TTL and lock-delay, or than the minimum hold, the store may keep a dead
	// holder's name closed (P5).
	Lateness time.Duration
	// Tokens says what the order of tokens rests on (P3).
	Tokens string
	// Faults has a verdict for every [Fault] of [Faults].
	Faults map[Fault]Verdict
}

// Fault is one thing that goes wrong.
type Fault string

// The faults that every store is judged by.
const (
	ClientCrash   Fault = "client crash"         // the holder's process is killed, or its host dies
	ClientPause   Fault = "client pause"         // the holder stands still beyond its TTL, then acts without asking; or a hypervisor pauses its machine, clocks and all
	ClientSuspend Fault = "client suspend"       // the holder's host sleeps for longer than the TTL, and its kernel knows
	StorePause    Fault = "store pause"          // the store stands still for longer than the TTL
	StoreRestart  Fault = "store restart"        // the store is killed and started again with its data
	StoreWiped    Fault = "store memory lost"    // the store comes back without its data
	Failover      Fault = "fail-over"            // another replica takes over
	Partition     Fault = "partition"            // the holder is cut off from the store
	LateReplies   Fault = "late replies"         // requests arrive, replies are held back
	ClockForward  Fault = "store clock forward"  // the store's wall clock is set forward
	ClockBack     Fault = "store clock backward" // the store's wall clock is set back
	DiskFull      Fault = "disk full"            // the store cannot write
)

// Faults returns every fault, in the order of the documentation's table.
func Faults() []Fault {
	return []Fault{
		ClientCrash, ClientPause, ClientSuspend, Partition, LateReplies,
		StorePause, StoreRestart, StoreWiped, Failover, ClockForward, ClockBack, DiskFull,
	}
}

// CommonFaults returns the verdicts of a store's own, and those that package holdfast sees to in every store
// which says nothing else: what becomes of a client that dies, stands still or hears nothing, where the store
// ends holds by a clock of its own.
func CommonFaults(own map[Fault]Verdict) map[Fault]Verdict {
	all := map[Fault]Verdict{
		ClientCrash: {Keeps, Keeps, "the holds of a client that died end with their TTL and lock-delay, or their minimum hold"},
		ClientPause: {Breaks, Keeps, "after a pause of the process a goroutine that does not look at its lease may act " +
			"beside the next holder: guard the resource with the token"},
		ClientSuspend: {Keeps, Keeps, "leases count suspended time: on waking the holder knows that it has lost"},
		Partition:     {Keeps, Keeps, "the holder stops trusting before the store lets the next one in"},
		LateReplies:   {Keeps, Keeps, "leases count from the sending of the request"},
		StorePause:    {Keeps, Keeps, "the TTL runs on while the store stands still; holders that could not renew have lost"},
	}
	maps.Copy(all, own)
	return all
}

// Verdict says what one fault does to the promises.
type Verdict struct {
	Exclusion Effect // P1
	Tokens    Effect // P3
	Note      string // why, and the remedy; at most a sentence or two
}

// Effect is what a fault does to one promise.
type Effect uint8

// The effects.
const (
	Unstated   Effect = iota // the driver says nothing: the conformance suite refuses it
	Impossible               // this fault cannot happen to this store
	Keeps                    // the promise holds, and nothing waits longer than without the fault
	Delays                   // the promise holds; names may open later
	Breaks                   // the promise can be broken: guard the resource with the token, if tokens hold
)

// String returns a word for the documentation's tables.
func (e Effect) String() string {
	switch e {
	case Impossible:
		return "n/a"
	case Keeps:
		return "kept"
	case Delays:
		return "kept, late"
	case Breaks:
		return "can break"
	}
	return "unstated"
}
