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

// Hold is one exclusive hold as its holder saw it. Instants of several processes of one host can be compared.
type Hold struct {
	Name  string
	Token holdfast.Token
	Who   string         // describes the holder to people
	From  driver.Instant // an instant at which it was trusted, soon after the first
	Until driver.Instant // when it was trusted last, or an instant before that
	Late  time.Duration  // how long after its deadline Err still returned nil (P2)
	Lost  string         // why it was lost; "": it was released
}

// String describes the hold to people.
func (h Hold) String() string {
	return fmt.Sprintf("token %d of %s on %q, trusted for %v", h.Token, h.Who, h.Name,
		h.Until.Sub(h.From))
}

// Watch polls a lease until it is lost or stop is closed, and returns for how long it was trusted. A poll that finds
// the lease valid until an instant counts until then, because the process may be stopped after it. Polled, if it is
// not nil, is called after each poll that found the lease trusted.
func Watch(lease *holdfast.Lease, stop <-chan struct{}, polled func()) Hold {
	return WatchEvery(lease, 500*time.Microsecond, stop, polled)
}

// WatchEvery is Watch with another pause between two polls, for a process with many leases. It returns up to one
// pause after stop is closed.
func WatchEvery(lease *holdfast.Lease, pause time.Duration, stop <-chan struct{}, polled func()) Hold {
	h := Hold{Name: lease.Name(), Token: lease.Token()}
	last := driver.Instant(0) // the last instant at which it was certainly trusted
	for {
		before := driver.HostClock.Now()
		if err := lease.Err(); err != nil {
			h.Lost = err.Error()
			if h.Until = min(h.Until, before); errors.Is(err, holdfast.ErrNotHeld) || errors.Is(err, holdfast.ErrBroken) {
				h.Until = last // the loss was notified at some time after that
			}
			return h
		}
		if last = before; h.From == 0 {
			h.From = driver.HostClock.Now()
		}
		// The deadline is between the earliest and the latest, if time passes between the two readings of the clocks.
		earliest := driver.HostClock.Now()
		left := time.Until(lease.ValidUntil())
		latest := driver.HostClock.Now().Add(left)
		h.Until = earliest.Add(left)
		h.Late = max(h.Late, before.Sub(latest))
		select {
		case <-stop:
			h.Until = min(h.Until, driver.HostClock.Now()) // and no longer than until the release
			return h
		default:
		}
		if polled != nil {
			polled()
		}
		time.Sleep(pause)
	}
}

// trusted sorts the holds of each name by when they began, and leaves out those that were never trusted.
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

// Overlaps returns a failure for each two holds on one name that were trusted at the same time (P1).
func Overlaps(holds []Hold) (found []string) {
	for _, hs := range trusted(holds) {
		last := hs[0]
		for _, h := range hs[1:] {
			if h.From < last.Until {
				found = append(found,
					fmt.Sprintf("P1: %v and %v overlap by %v", last, h, min(last.Until, h.Until).Sub(h.From)))
			}
			if h.Until > last.Until {
				last = h
			}
		}
	}
	return found
}

// Late returns a failure for each hold that was trusted after its deadline (P2).
func Late(holds []Hold) (found []string) {
	for _, h := range holds {
		if h.Late > 0 {
			found = append(found, fmt.Sprintf("P2: %v was trusted for %v after its deadline", h, h.Late))
		}
	}
	return found
}

// Disorder returns a failure for each hold whose token is not higher than that of the hold on the name before it
// (P3).
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
