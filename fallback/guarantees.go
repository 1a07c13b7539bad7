package fallback

import "github.com/holdfastlock/holdfast/driver"

// meet returns what two stores can both do.
func meet(a, b driver.Caps, store string) driver.Caps {
	c := driver.Caps{
		Store:   store,
		Shared:  a.Shared && b.Shared,
		Slots:   a.Slots && b.Slots,
		NoNotes: a.NoNotes || b.NoNotes,
		MinTTL:  max(a.MinTTL, b.MinTTL),
		MaxTTL:  a.MaxTTL,
		Recalls: a.Recalls && b.Recalls,
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
		x, y := a.Guarantees.Faults[f], b.Guarantees.Faults[f]
		v := driver.Verdict{Exclusion: max(x.Exclusion, y.Exclusion), Tokens: driver.Impossible, Note: x.Note}
		if x.Note != y.Note {
			v.Note = "in the first store: " + x.Note + "; in the second: " + y.Note
		}
		switch why := apart[f]; {
		case why == "" && min(x.Exclusion, y.Exclusion) == driver.Unstated:
			v.Exclusion = driver.Unstated
		case why != "" && v.Exclusion == driver.Breaks:
			v.Note = why + "; " + v.Note
		case why != "":
			v.Exclusion, v.Note = driver.Breaks, why
		}
		c.Guarantees.Faults[f] = v
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

// Lacks tells driver.As whether the first store has no queue or cannot tell who holds its locks: see package wrap.
func (d *Driver) Lacks(ability any) bool {
	_, shards := ability.(*driver.Sharder)
	return !shards && d.like.Lacks(ability)
}
