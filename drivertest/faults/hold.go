package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// Hold is one exclusive hold as its holder saw it. Instants of different
// processes of one host may be compared.
type Hold struct {
	Name  string
	Token holdfast.Token
	Who   string         // the holder, for people
	From  driver.Instant // when it was trusted first; after it was
	Until driver.Instant // the end of trust, or an instant before
	Late  time.Duration  // how long after its deadline Err still returned nil (P2)
	Lost  string         // why it was over, if it was not released
}

// String describes the hold to people.
func (h Hold) String() string {
	return fmt.Sprintf("token %d of %s on %q, trusted for %v", h.Token, h.Who, h.Name, h.Until.Sub(h.From))
}

// Watch looks at a lease all the time until it is over or stop is closed, and
// says for how long it could be trusted: the holder acts on nothing but Err and
// ValidUntil, so nothing else counts. What a process claims before it is stopped
// it claims until then, whatever it would find when it goes on. Looked, if not
// nil, is called after each look that found the lease trusted.
func Watch(lease *holdfast.Lease, stop <-chan struct{}, looked func()) Hold {
	h := Hold{Name: lease.Name(), Token: lease.Token()}
	last := driver.Instant(0) // the last instant at which it was certainly trusted
	for {
		before := driver.HostClock.Now()
		if err := lease.Err(); err != nil {
			h.Lost = err.Error()
			if h.Until = min(h.Until, before); errors.Is(err, holdfast.ErrNotHeld) || errors.Is(err, holdfast.ErrBroken) {
				h.Until = last // it was told, at some time since then
			}
			return h
		}
		if last = before; h.From == 0 {
			h.From = driver.HostClock.Now()
		}
		h.Until = driver.HostClock.Now().Add(time.Until(lease.ValidUntil()))
		h.Late = max(h.Late, before.Sub(h.Until))
		if over(stop) {
			h.Until = min(h.Until, driver.HostClock.Now()) // and no longer than until the release
			return h
		}
		if looked != nil {
			looked()
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// trusted sorts the holds that were ever trusted by when they began, name by name.
func trusted(holds []Hold) map[string][]Hold {
	names := map[string][]Hold{}
	for _, h := range holds {
		if h.From != 0 && h.From < h.Until {
			names[h.Name] = append(names[h.Name], h)
		}
	}
	for _, hs := range names {
		slices.SortFunc(hs, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	}
	return names
}

// Overlaps returns where two holds on one name were trusted at the same time (P1).
func Overlaps(holds []Hold) (found []string) {
	for _, hs := range trusted(holds) {
		last := hs[0]
		for _, h := range hs[1:] {
			if h.From < last.Until {
				found = append(found, fmt.Sprintf("P1: %v and %v overlap by %v", last, h, min(last.Until, h.Until).Sub(h.From)))
			}
			if h.Until > last.Until {
				last = h
			}
		}
	}
	return found
}

// Late returns which holds were trusted after their deadline (P2).
func Late(holds []Hold) (found []string) {
	for _, h := range holds {
		if h.Late > 0 {
			found = append(found, fmt.Sprintf("P2: %v was trusted for %v after its deadline", h, h.Late))
		}
	}
	return found
}

// Disorder returns where a hold on a name has no higher token than one that
// began before it (P3).
func Disorder(holds []Hold) (found []string) {
	for _, hs := range trusted(holds) {
		for i, h := range hs[1:] {
			if h.Token <= hs[i].Token {
				found = append(found, fmt.Sprintf("P3: %v comes after %v", h, hs[i]))
			}
		}
	}
	return found
}
