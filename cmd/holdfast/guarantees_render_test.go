//go:build soak && linux

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// This file writes the documentation of what each store can do, and of what remains of the promises under each fault,
// from the data that the drivers publish. The fault tests assert the same data, so the documentation is true.

// documentedStore is one driver as it is documented.
type documentedStore struct {
	Package string // its directory in the repository
	Layout  string // how it keeps locks, if not in its own way
	// Deployment is how the servers are deployed, if there is more than one way.
	Deployment string
	With       string        // parameters of its URL that change what it guarantees, if any
	URL        string        // an example
	Driver     driver.Driver // may be closed
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
     go test -tags soak ./cmd/holdfast -run TestGuaranteesDoc -update -->

What each store can do, and what remains of two promises of [the design](design.md) when things go wrong: *exclusion*
(P1), that at most one exclusive hold is trusted at any instant, and *tokens* (P3), that fencing tokens grow from one
hold to the next. Every driver publishes this as data (` + "`Client.Caps().Guarantees`" + `).

## What the stores can do

`

const legend = `
- **fencing**: leases carry fencing tokens. **fair**: clients are served in the order of the store's queue (P8).
- **queue**: the store itself queues waiters, and a release wakes the next; else waiters ask again after growing pauses.
- **push**: the store tells a holder that its hold is gone, before the next renewal would.
- **operator**: Inspect, List and Break. **downgrade**: Downgrade. **watch**: changes are told, not polled for.
- **TTL**: the TTLs that the store takes. **poll**: the longest that a waiter goes without asking again.
- **late**: how long after TTL and lock-delay, or its minimum hold, a dead holder's name opens at the latest (P5).

## What holds unless a store's section says otherwise

*Kept*: the promise holds. *Kept, late*: names may open later. *Can break*: let the resource check the token, where the
tokens hold. *N/a*: this cannot happen to the store. What *differs* stands in each section.

| fault | what happens | exclusion | tokens | why, and the remedy |
|---|---|---|---|---|
`

// Render returns docs/guarantees.md.
func Render(stores []documentedStore) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	capabilities(&b, stores)
	b.WriteString(legend)
	most := common(stores)
	for _, f := range driver.Faults() {
		if v, ok := most[f]; ok {
			row(&b, string(f), meanings[f], v.Exclusion.String(), v.Tokens.String(), v.Note)
		} else {
			row(&b, string(f), meanings[f], "differs", "differs", "")
		}
	}
	for i, s := range stores {
		section(&b, s, parent(stores[:i], s), most)
	}
	return b.Bytes()
}

// alike is how many stores must have the same verdict of a fault for it to be said once for all.
const alike = 3

// common returns the verdicts that most stores have word for word, as far as enough of them have.
func common(stores []documentedStore) map[driver.Fault]driver.Verdict {
	most := map[driver.Fault]driver.Verdict{}
	for _, f := range driver.Faults() {
		count := map[driver.Verdict]int{}
		for _, s := range stores {
			if v := s.Caps.Guarantees.Faults[f]; s.title() == s.Package && v != (driver.Verdict{}) {
				count[v]++
				if count[v] >= alike && count[v] > count[most[f]] {
					most[f] = v
				}
			}
		}
	}
	return most
}

// parent returns the store before that a section refers to: of the same package, and of these the one
// with the most verdicts in common. It is nil for the first store of a package.
func parent(before []documentedStore, s documentedStore) (nearest *documentedStore) {
	best := -1
	for i := range before {
		same := 0
		for _, f := range driver.Faults() {
			if before[i].Caps.Guarantees.Faults[f] == s.Caps.Guarantees.Faults[f] {
				same++
			}
		}
		if before[i].Package == s.Package && same > best {
			nearest, best = &before[i], same
		}
	}
	return nearest
}

func capabilities(b *bytes.Buffer, stores []documentedStore) {
	row(b, "package", "fencing", "fair", "shared", "semaphores", "queue", "push", "operator", "downgrade",
		"watch", "TTL", "poll", "late")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range stores {
		c := s.Caps
		row(b, link(s), yes(c.Fencing), yes(c.Fair), yes(c.Shared), yes(c.Slots),
			yes(has[driver.Queuer](s)), yes(pushes(s)), yes(has[driver.Operator](s)),
			yes(has[driver.Downgrader](s) && c.Shared), yes(has[driver.Watcher](s)), ttls(c), c.PollInterval().String(), c.Guarantees.Lateness.String())
	}
}

func has[T any](s documentedStore) bool {
	_, ok := driver.As[T](s.Driver)
	return ok
}

// pushes reports whether the store tells of losses.
func pushes(s documentedStore) bool {
	n, ok := driver.As[driver.Notifier](s.Driver)
	return ok && n.Losses() != nil
}

// section writes what a store guarantees, as far as its parent or most stores do not.
func section(b *bytes.Buffer, s documentedStore, parent *documentedStore, most map[driver.Fault]driver.Verdict) {
	g := s.Caps.Guarantees
	fmt.Fprintf(b, "\n## %s\n\n", s.title())
	switch {
	case parent == nil:
		fmt.Fprintf(b, "%s **Tokens**: %s\n", text(g.Summary), text(g.Tokens))
	default:
		fmt.Fprintf(b, "As %s, except:", link(*parent))
		if g.Summary != parent.Caps.Guarantees.Summary {
			fmt.Fprintf(b, " %s", text(g.Summary))
		}
		if g.Tokens != parent.Caps.Guarantees.Tokens {
			fmt.Fprintf(b, " **Tokens**: %s", text(g.Tokens))
		}
		b.WriteString("\n")
	}
	var order []driver.Verdict
	rows := map[driver.Verdict][]string{} // the faults that have the same verdict
	for _, f := range driver.Faults() {
		v := g.Faults[f]
		known, ok := most[f]
		if parent != nil {
			known, ok = parent.Caps.Guarantees.Faults[f], true
		}
		if ok && known == v {
			continue
		}
		if ok && known.Note == v.Note {
			v.Note = "the same"
		}
		if rows[v] == nil {
			order = append(order, v)
		}
		rows[v] = append(rows[v], string(f))
	}
	if order == nil {
		return
	}
	b.WriteString("\n| fault | exclusion | tokens | why, and the remedy |\n|---|---|---|---|\n")
	for _, v := range order {
		row(b, strings.Join(rows[v], ", "), v.Exclusion.String(), v.Tokens.String(), v.Note)
	}
}

// Table returns the table of stores for the README: what the locks of each rest on, and which
// faults can break them.
func Table(stores []documentedStore) []byte {
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

func link(s documentedStore) string { return fmt.Sprintf("[%s](#%s)", s.title(), anchor(s)) }

// title returns a store's heading.
func (s documentedStore) title() string {
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
func anchor(s documentedStore) string {
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

// The table of the guide docs/choose.md, from the same data as docs/guarantees.md.

// beside returns a link from the guide to the store's section of docs/guarantees.md.
func beside(s documentedStore) string { return "[" + s.Package + "](guarantees.md#" + anchor(s) + ")" }

// Risks returns the table of what each fault puts at risk in each store.
func Risks(stores []documentedStore) []byte {
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

// Splice returns the text with table between the markers of a part, instead of what was there. It is an
// error if there is not one of each, in order.
func Splice(text []byte, part string, table []byte) ([]byte, error) {
	begin, end := []byte("<!-- "+part+":begin -->\n"), []byte("<!-- "+part+":end -->")
	before, rest, ok := bytes.Cut(text, begin)
	_, after, ok2 := bytes.Cut(rest, end)
	if !ok || !ok2 || bytes.Contains(after, begin) || bytes.Contains(after, end) {
		return nil, fmt.Errorf("the text has not one %s and, after it, one %s", begin[:len(begin)-1], end)
	}
	return bytes.Join([][]byte{before, begin, table, end, after}, nil), nil
}
