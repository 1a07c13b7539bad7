package fallback

import "github.com/holdfastlock/holdfast/driver"

// meet returns what two stores can both do.
func meet(a, b driver.Caps, store string) driver.Caps {
	c := driver.Caps{
		Store: store,
		// Batches go to each store by itself, so a store that is silent delays no other.
		Ops:     a.Ops&b.Ops | driver.OpShard,
		Shared:  a.Shared && b.Shared,
		Slots:   a.Slots && b.Slots,
		Fair:    a.Fair && b.Fair,
		NoNotes: a.NoNotes || b.NoNotes,
		MinTTL:  max(a.MinTTL, b.MinTTL),
		MaxTTL:  a.MaxTTL,
		Poll:    min(a.PollInterval(), b.PollInterval()),
		Guarantees: driver.Guarantees{
			Summary: "The first store or, while that is silent, the second: clients that see different " +
				"stores do not exclude each other.",
			Lateness: max(a.Guarantees.Lateness, b.Guarantees.Lateness),
			Tokens: "Those of the first store. A degraded hold has none, so tokens guard nothing while the " +
				"second store is in use.",
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
	driver.Partition:    "a client that is cut off from the first store uses the second, beside those that reach the first",
	driver.LateReplies:  "a client to which the first store seems silent uses the second, beside those that get answers",
	driver.StorePause:   "clients do not notice at the same instant that the first store comes back, so for the time of a probe they may use different stores",
	driver.StoreRestart: "as after a pause, if the restart takes longer than Options.Silence",
	driver.Failover:     "as after a pause, if it takes longer than Options.Silence",
	driver.StoreWiped:   "as after a pause, if the store is away for longer than Options.Silence",
	driver.DiskFull:     "as after a pause, if the first store cannot even withdraw a request, so that probes fail",
}

// verdict says what a fault does to locks that are in one of two stores.
func verdict(f driver.Fault, a, b driver.Verdict) driver.Verdict {
	v := driver.Verdict{
		Exclusion: max(a.Exclusion, b.Exclusion),
		Tokens:    driver.Impossible, // there are none that grow over both stores
		Note:      a.Note,
	}
	if a.Exclusion == driver.Unstated || b.Exclusion == driver.Unstated {
		v.Exclusion = driver.Unstated
	}
	switch {
	case a.Note == b.Note:
	case a.Note != "" && b.Note != "":
		v.Note = "in the first store: " + a.Note + "; in the second: " + b.Note
	case a.Note != "":
		v.Note = "in the first store: " + a.Note
	default:
		v.Note = "in the second store: " + b.Note
	}
	if why := apart[f]; why != "" {
		if v.Exclusion == driver.Breaks {
			why += "; " + v.Note
		}
		v.Exclusion, v.Note = driver.Breaks, why
	}
	return v
}
