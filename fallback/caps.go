package fallback

import (
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// meet returns what two stores can both do.
func meet(a, b driver.Caps, store string) driver.Caps {
	c := driver.Caps{
		Store: store,
		// Batches go to each store by itself, so a store that is silent delays no other.
		Ops:    a.Ops&b.Ops | driver.OpShard,
		Shared: a.Shared && b.Shared,
		Slots:  a.Slots && b.Slots,
		Fair:   a.Fair && b.Fair,
		MinTTL: max(a.MinTTL, b.MinTTL),
		MaxTTL: a.MaxTTL,
		Poll:   min(a.PollInterval(), b.PollInterval()),
		Guarantees: driver.Guarantees{
			Summary: "The first store or, while that is silent, the second: clients that see different " +
				"stores do not exclude each other.",
			Lateness: max(a.Guarantees.Lateness, b.Guarantees.Lateness),
			Tokens: "Those of the first store. A degraded hold has none, so nothing can be guarded by " +
				"tokens alone.",
			Faults: map[driver.Fault]driver.Verdict{},
		},
	}
	if a.MaxTTL == 0 || b.MaxTTL != 0 && b.MaxTTL < a.MaxTTL {
		c.MaxTTL = b.MaxTTL
	}
	for _, f := range driver.Faults() {
		c.Guarantees.Faults[f] = verdict(f, a.Guarantees.Faults[f], b.Guarantees.Faults[f])
	}
	return c
}

// apart says what a fault of the first store, or of the way to it, does.
var apart = map[driver.Fault]string{
	driver.Partition: "A client that is cut off from the first store uses the second, beside those that " +
		"reach the first.",
	driver.LateReplies: "A client to which the first store seems silent uses the second, beside those " +
		"that get answers.",
	driver.StorePause: "Clients do not notice at the same instant that the first store comes back, so for " +
		"the time of a probe they may use different stores.",
	driver.StoreRestart: "As after a pause, if the restart takes longer than Options.Silence.",
	driver.Failover:     "As after a pause, if the fail-over takes longer than Options.Silence.",
	driver.StoreWiped:   "As after a pause, if the store is away for longer than Options.Silence.",
	driver.DiskFull: "As after a pause, if the first store cannot even withdraw a request, so that probes " +
		"fail.",
}

// verdict says what a fault does to locks that are in one of two stores.
func verdict(f driver.Fault, a, b driver.Verdict) driver.Verdict {
	v := driver.Verdict{
		Exclusion: max(a.Exclusion, b.Exclusion),
		// There are no tokens that grow over both stores: what breaks P1 breaks what is built on them.
		Tokens: driver.Impossible,
	}
	if a.Exclusion == driver.Unstated || b.Exclusion == driver.Unstated {
		v.Exclusion = driver.Unstated
	}
	if why, ok := apart[f]; ok {
		v.Exclusion = driver.Breaks
		v.Note = why + " Let the resource itself refuse what is done twice."
		return v
	}
	switch {
	case a.Note == b.Note:
		v.Note = a.Note
	case a.Note != "" && b.Note != "":
		v.Note = fmt.Sprintf("First store: %s Second: %s", a.Note, b.Note)
	case a.Note != "":
		v.Note = "First store: " + a.Note
	default:
		v.Note = "Second store: " + b.Note
	}
	return v
}
