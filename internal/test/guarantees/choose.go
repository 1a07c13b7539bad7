package guarantees

import (
	"bytes"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// The table of the guide docs/choose.md, from the same data as docs/guarantees.md.

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
