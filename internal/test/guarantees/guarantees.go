// Package guarantees writes the documentation of what each store can do, and of what remains of
// the promises under each fault, from the data that the drivers publish. The fault tests assert
// the same data, so the documentation is true.
package guarantees

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Store is one driver as it is documented.
type Store struct {
	Package string // its directory in the repository
	Layout  string // how it keeps locks, if not in its own way
	// Deployment is how the servers are deployed, if there is more than one way.
	Deployment string
	With       string // parameters of its URL that change what it guarantees, if any
	URL        string // an example
	Caps       driver.Caps
}

// meanings explains each fault.
var meanings = map[driver.Fault]string{
	driver.ClientCrash:   "the holder's process is killed, or its host dies",
	driver.ClientPause:   "the holder stands still for longer than its TTL, and then acts without asking its lease; or a hypervisor pauses its machine, whose clocks may stand still too, so that asking does not help",
	driver.ClientSuspend: "the holder's host sleeps for longer than the TTL, and its kernel knows",
	driver.Partition:     "the holder is cut off from the store",
	driver.LateReplies:   "requests arrive, replies are held back",
	driver.StorePause:    "the store stands still for longer than the TTL",
	driver.StoreRestart:  "the store is killed and started again with its data",
	driver.StoreWiped:    "the store comes back without its data",
	driver.Failover:      "another replica takes over",
	driver.ClockForward:  "the store's wall clock is set forward",
	driver.ClockBack:     "the store's wall clock is set back",
	driver.DiskFull:      "the store cannot write",
}

const head = `# Guarantees

<!-- Generated from the drivers' Caps by the test TestGuaranteesDoc of module cmd/holdfast. Do not edit:
     go test ./cmd/holdfast -run TestGuaranteesDoc -update -->

What each store can do, and what remains of two promises of [the design](design.md) when things go wrong: *exclusion* (P1), that
at most one exclusive hold is trusted at any instant, and *tokens* (P3), that fencing tokens grow from one hold to the next. Every driver
publishes this as data (` + "`Client.Caps().Guarantees`" + `).

## What the stores can do

`

const verdicts = `
- **fencing**: leases carry fencing tokens. **fair**: clients are served in the order of the store's queue (P8).
- **queue**: the store itself queues waiters, and a release wakes the next; else waiters ask again after growing pauses.
- **push**: the store tells a holder that its hold is gone, before the next renewal would.
- **inspect**, **break**, **downgrade**, **annotate** (another note for a hold), **watch** (changes are told, not polled for): the operations of these names.
- **TTL**: the TTLs that the store takes. **poll**: the longest that a waiter goes without asking again.

## How to read the verdicts

| verdict | meaning |
|---|---|
`

// Render returns docs/guarantees.md.
func Render(stores []Store) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	capabilities(&b, stores)
	b.WriteString(verdicts)
	row(&b, driver.Keeps.String(), "the promise holds, and nothing waits longer than without the fault")
	row(&b, driver.Delays.String(), "the promise holds; names may open later")
	row(&b, driver.Breaks.String(),
		"the promise can be broken: let the resource check the token, where the tokens hold")
	row(&b, driver.Impossible.String(), "this cannot happen to this store")
	b.WriteString("\n| fault | what happens |\n|---|---|\n")
	for _, f := range driver.Faults() {
		row(&b, string(f), meanings[f])
	}
	for _, s := range stores {
		section(&b, s)
	}
	return b.Bytes()
}

func capabilities(b *bytes.Buffer, stores []Store) {
	row(b, "package", "fencing", "fair", "shared", "semaphores", "queue", "push", "inspect",
		"break", "downgrade", "annotate", "watch", "TTL", "poll")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range stores {
		c := s.Caps
		row(b, link(s), yes(c.Fencing), yes(c.Fair), yes(c.Shared), yes(c.Slots),
			yes(c.Ops.Has(driver.OpQueue)), yes(c.Ops.Has(driver.OpNotify)), yes(c.Ops.Has(driver.OpInspect)),
			yes(c.Ops.Has(driver.OpBreak)), yes(c.Ops.Has(driver.OpDowngrade)),
			yes(c.Ops.Has(driver.OpAnnotate)), yes(c.Ops.Has(driver.OpWatch)), ttls(c), c.PollInterval().String())
	}
}

func section(b *bytes.Buffer, s Store) {
	g := s.Caps.Guarantees
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", s.title(), text(g.Summary))
	fmt.Fprintf(b, "- **Tokens**: %s\n", text(g.Tokens))
	late := "a dead holder's name opens when TTL and lock-delay, or its minimum hold, are over, without delay by the store"
	if g.Lateness > 0 {
		late = fmt.Sprintf("a dead holder's name opens at most %v after TTL and lock-delay, or its minimum hold, are over",
			g.Lateness)
	}
	fmt.Fprintf(b, "- **Lateness** (P5): %s.\n\n", late)
	b.WriteString("| fault | exclusion | tokens | why, and the remedy |\n|---|---|---|---|\n")
	for _, f := range driver.Faults() {
		v := g.Faults[f]
		row(b, string(f), v.Exclusion.String(), v.Tokens.String(), v.Note)
	}
}

// Table returns the table of stores for the README: what the locks of each rest on, and which
// faults can break them.
func Table(stores []Store) []byte {
	var b bytes.Buffer
	row(&b, "package", "URL", "what its locks rest on", "fencing tokens", "fair between clients",
		"exclusion can break by")
	b.WriteString("|---|---|---|---|---|---|\n")
	for _, s := range stores {
		var risks []string
		for _, f := range driver.Faults() {
			if s.Caps.Guarantees.Faults[f].Exclusion == driver.Breaks {
				risks = append(risks, string(f))
			}
		}
		if risks == nil {
			risks = []string{"nothing listed"}
		}
		row(&b, fmt.Sprintf("[`%s`](docs/guarantees.md#%s)", s.Package, anchor(s)), "`"+s.URL+"`",
			s.Caps.Guarantees.Summary,
			yes(s.Caps.Fencing), yes(s.Caps.Fair), strings.Join(risks, ", "))
	}
	return b.Bytes()
}

func row(b *bytes.Buffer, cells ...string) {
	for _, c := range cells {
		b.WriteString("| " + text(c) + " ")
	}
	b.WriteString("|\n")
}

// text makes s fit one line of a table.
func text(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

func link(s Store) string { return fmt.Sprintf("[%s](#%s)", s.title(), anchor(s)) }

// title returns a store's heading.
func (s Store) title() string {
	title := s.Package
	if s.Deployment != "" {
		title += ", " + s.Deployment
	}
	if s.Layout != "" {
		title += ", layout " + s.Layout
	}
	if s.With != "" {
		title += ", " + s.With
	}
	return title
}

// anchor returns the anchor of a store's heading in links.
func anchor(s Store) string {
	return strings.NewReplacer("/", "", ",", "", ".", "", "=", "", " ", "-").Replace(s.title())
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func ttls(c driver.Caps) string {
	switch {
	case c.MinTTL == 0 && c.MaxTTL == 0:
		return "any"
	case c.MaxTTL == 0:
		return "from " + c.MinTTL.String()
	case c.MinTTL == 0:
		return "up to " + c.MaxTTL.String()
	}
	return c.MinTTL.String() + " to " + c.MaxTTL.String()
}
