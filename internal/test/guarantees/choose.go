package guarantees

import (
	"bytes"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// The tables of the guide docs/choose.md, from the same data as docs/guarantees.md.

// beside returns a link from the guide to the store's section of docs/guarantees.md.
func beside(s Store) string { return "[" + s.Package + "](guarantees.md#" + anchor(s) + ")" }

// Risks returns the table of what each fault puts at risk in each store.
func Risks(stores []Store) []byte {
	var b bytes.Buffer
	titles := []string{"fault"}
	for _, s := range stores {
		titles = append(titles, beside(s))
	}
	row(&b, titles...)
	b.WriteString(strings.Repeat("|---", len(titles)) + "|\n")
	for _, f := range driver.Faults() {
		cells := []string{string(f)}
		for _, s := range stores {
			cells = append(cells, risk(s.Caps.Guarantees.Faults[f]))
		}
		row(&b, cells...)
	}
	return b.Bytes()
}

// risk says in a few words what a fault puts at risk.
func risk(v driver.Verdict) string {
	holder, tokens := v.Exclusion == driver.Breaks, v.Tokens == driver.Breaks
	switch {
	case v.Exclusion == driver.Unstated || v.Tokens == driver.Unstated:
		if !holder {
			return driver.Unstated.String()
		}
		return "**second holder**"
	case holder && tokens:
		return "**second holder, tokens**"
	case holder:
		return "**second holder**"
	case tokens && v.Exclusion == driver.Delays:
		return "late; **tokens**"
	case tokens:
		return "**tokens**"
	case v.Exclusion == driver.Delays || v.Tokens == driver.Delays:
		return "late"
	case v.Exclusion == driver.Impossible:
		return driver.Impossible.String()
	}
	return "–"
}

// defects are the five that articles find in locks, with the faults that show whether a store has
// them. A defect without faults cannot happen in any store, because a promise rules it out.
var defects = []struct {
	name   string
	faults []driver.Fault
}{
	{"no expiry", []driver.Fault{driver.ClientCrash}},
	{"no owner", nil}, // P4
	{"wrong expiry", []driver.Fault{driver.LateReplies, driver.ClockForward, driver.ClockBack}},
	{"fail-over", []driver.Fault{driver.StoreRestart, driver.StoreWiped, driver.Failover}},
	{"paused client", []driver.Fault{driver.ClientPause, driver.ClientSuspend}},
}

// Defects returns the table of the five defects. A defect is what can break exclusion.
func Defects(stores []Store) []byte {
	var b bytes.Buffer
	titles := []string{"store"}
	for _, d := range defects {
		titles = append(titles, d.name)
	}
	row(&b, titles...)
	b.WriteString(strings.Repeat("|---", len(titles)) + "|\n")
	for _, s := range stores {
		cells := []string{beside(s)}
		for _, d := range defects {
			cells = append(cells, defect(s, d.faults))
		}
		row(&b, cells...)
	}
	return b.Bytes()
}

// defect names those of the faults that can break exclusion in a store.
func defect(s Store, faults []driver.Fault) string {
	var broken []string
	var seen []driver.Effect
	for _, f := range faults {
		e := s.Caps.Guarantees.Faults[f].Exclusion
		seen = append(seen, e)
		if e == driver.Breaks {
			broken = append(broken, string(f))
		}
	}
	switch {
	case broken != nil:
		return "**" + strings.Join(broken, ", ") + "**"
	case slices.Contains(seen, driver.Unstated):
		return driver.Unstated.String()
	case slices.Contains(seen, driver.Delays):
		return "names open late"
	}
	return "cannot happen"
}

// Character returns the table of what else tells the stores apart.
func Character(stores []Store) []byte {
	var b bytes.Buffer
	row(&b, "store", "fair", "a holder is told that its hold is gone", "watching a name", "longest between two polls",
		"shortest TTL", "a dead holder's name opens within")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for _, s := range stores {
		c := s.Caps
		told := "by its next renewal"
		if c.Ops.Has(driver.OpNotify) {
			told = "at once"
		}
		watching := "no"
		switch {
		case c.Ops.Has(driver.OpWatch):
			watching = "changes are told"
		case c.Ops.Has(driver.OpInspect):
			watching = "polls"
		}
		shortest := "any"
		if c.MinTTL > 0 {
			shortest = c.MinTTL.String()
		}
		opens := "TTL + lock-delay"
		if late := c.Guarantees.Lateness; late > 0 {
			opens += " + up to " + late.String()
		}
		row(&b, beside(s), yes(c.Fair), told, watching, c.PollInterval().String(), shortest, opens)
	}
	return b.Bytes()
}
