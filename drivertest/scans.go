package drivertest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Each scan checks a whole history, of any length, in O(n log n). All instants are of one clock.

// held is one hold as its client saw it. The client trusts it from the arrival of the grant until it sends the
// release, or until the TTL, counted from Since, ends.
type held struct {
	driver.Request
	token driver.Token
	from  driver.Instant // the arrival of the grant
	until driver.Instant // the end of trust
}

func (h held) String() string {
	return fmt.Sprintf("%v hold of %.8s, token %d, trusted %d–%d", h.Mode, h.Owner, h.token, h.from, h.until)
}

// byName sorts the holds of each name by when they began. Holds that were never trusted prove nothing and are left
// out.
func byName(holds []held) map[string][]held {
	names := map[string][]held{}
	for _, h := range holds {
		if h.from < h.until {
			names[h.Name] = append(names[h.Name], h)
		}
	}
	for _, hs := range names {
		slices.SortFunc(hs, func(a, b held) int { return cmp.Compare(a.from, b.from) })
	}
	return names
}

// scanIntervals finds holds that must not be trusted at the same time, and are (P1): an exclusive one beside any
// other, or more permits than slots.
func scanIntervals(holds []held) (found []string) {
	for name, hs := range byName(holds) {
		var live []held // beside the next
		for _, h := range hs {
			live = slices.DeleteFunc(live, func(l held) bool { return l.until <= h.from })
			exclusive, permits := h.Mode == driver.Exclusive, h.Permits
			for _, l := range live {
				exclusive = exclusive || l.Mode == driver.Exclusive
				permits += l.Permits
			}
			if exclusive && len(live) > 0 || h.Mode == driver.Slot && permits > h.Slots {
				found = append(found, fmt.Sprintf("P1: on %q %v stands beside %d others (%d permits in use)", name, h, len(live), permits))
			}
			live = append(live, h)
		}
	}
	return found
}

// scanTokens finds tokens that do not grow (P3). The token of an exclusive hold must be higher than those of the
// exclusive holds before it, and not lower than those of the shared holds before it; that of a shared hold must be
// higher than those of the exclusive holds before it. The history must be one in which scanIntervals finds nothing.
func scanTokens(holds []held) (found []string) {
	for name, hs := range byName(holds) {
		var writer, reader driver.Token
		for _, h := range hs {
			if h.Mode == driver.Slot {
				continue
			}
			if h.token <= writer || h.Mode == driver.Exclusive && h.token < reader {
				found = append(found, fmt.Sprintf("P3: on %q %v comes after writers up to token %d and readers up to %d", name, h, writer, reader))
			}
			if h.Mode == driver.Exclusive {
				writer = max(writer, h.token)
			} else {
				reader = max(reader, h.token)
			}
		}
	}
	return found
}

// place is the time of one exclusive request in a queue. It was granted in the end, and was confirmed so often that
// the store had no right to drop it.
type place struct {
	name, owner string
	asked       driver.Instant // when the first Enqueue was called: the place is not older
	queued      driver.Instant // when Enqueue first returned ErrHeld: the place is not younger
	granted     driver.Instant // the arrival of the grant
}

// scanOrder finds places that were granted out of order (P8): if A was in the queue before B asked for a place, A
// must be granted first. An exclusive hold ends before the next begins, so the grants arrive in the order in which
// they were made.
func scanOrder(places []place) (found []string) {
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.granted, b.granted) })
	lasts := map[string]place{} // of each name: among the places granted so far, the one that asked last
	for _, p := range places {
		last := lasts[p.name]
		if last.owner != "" && p.queued < last.asked {
			found = append(found, fmt.Sprintf("P8: on %q %.8s asked for a place %v after %.8s had one, and was granted first",
				p.name, last.owner, last.asked.Sub(p.queued).Round(time.Microsecond), p.owner))
		}
		if last.owner == "" || p.asked > last.asked {
			lasts[p.name] = p
		}
	}
	return found
}
