package drivertest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

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

// The linearizability checker searches for one order of the operations that explains all replies. Its cost grows fast
// with length and concurrency, so it gets histories of one name, of at most maxPiece operations and 32 clients.
const maxPiece = 5000

// linearTimeout bounds the check of one piece; a check that does not finish is a failure.
const linearTimeout = 3 * time.Minute

type action uint8

const (
	actTry action = iota
	actRenew
	actRelease // or a withdrawal
)

// step is one operation on a fenced mutex.
type step struct {
	action action
	owner  string
}

// reply is the outcome of a step.
type reply struct {
	done    bool         // granted, renewed, released
	unknown bool         // no reply: it may have taken effect, or take effect later
	token   driver.Token // of a grant; 0: none
}

// mutexState is the model's state of a name.
type mutexState struct {
	owner string // "": free
	high  driver.Token
}

// mutexModel is a fenced mutex that checks owners and whose holds do not expire. With strict, a Try is refused only
// while another holds the name. Without, two that arrive at the same time may both be refused, as by a store that
// keeps no order of arrivals. A history has one name.
func mutexModel(strict bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return mutexState{} },
		Step: func(state, input, output any) (bool, any) {
			return mutexStep(state.(mutexState), input.(step), output.(reply), strict)
		},
	}
}

// mutexStep reports whether a reply is right in a state, and returns the next state. An operation without a reply
// that has no effect is ordered after all others.
func mutexStep(s mutexState, in step, out reply, strict bool) (bool, mutexState) {
	mine := s.owner == in.owner
	switch in.action {
	case actTry:
		if out.unknown || out.done {
			if s.owner != "" && !mine {
				return out.unknown, s
			}
			if out.done && out.token != 0 && !mine && out.token <= s.high {
				return false, s
			}
			return true, mutexState{in.owner, max(s.high, out.token)}
		}
		return !strict || s.owner != "" && !mine, s
	case actRenew:
		return out.unknown || out.done == mine, s
	default:
		// An owner without a hold may get nil or ErrNotHeld; the holder MUST get nil.
		if !mine {
			return true, s
		}
		return out.done || out.unknown, mutexState{"", s.high}
	}
}

// boundUnknown says until when operations without a reply may take effect: until the end, or until a withdrawal of
// their owner is confirmed that was sent later (P6). One that has done nothing can be put right before that
// withdrawal.
//
// While a store is down, a withdrawal is repeated. Only the first that takes effect changes anything, because each
// owner asks for one hold. So of those of an owner that have no reply the earliest stands for all: else the orders to
// search would double with each.
func boundUnknown(history []porcupine.Operation) []porcupine.Operation {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	withdrawing := map[string]bool{}
	history = slices.DeleteFunc(history, func(op porcupine.Operation) bool {
		in := op.Input.(step)
		if !op.Output.(reply).unknown || in.action != actRelease {
			return false
		}
		again := withdrawing[in.owner]
		withdrawing[in.owner] = true
		return again
	})
	for i := range history {
		op := &history[i]
		if !op.Output.(reply).unknown {
			continue
		}
		op.Return = math.MaxInt64
		for _, later := range history[i+1:] {
			in, out := later.Input.(step), later.Output.(reply)
			if in.action == actRelease && in.owner == op.Input.(step).owner && out.done {
				op.Return = later.Return
				break
			}
		}
	}
	return history
}

// checkLinear returns the failure of a history, or "".
func checkLinear(history []porcupine.Operation, strict bool) string {
	// A renewal without a reply is right in every state and changes none. Without it there are fewer orders to
	// search.
	history = slices.DeleteFunc(history, func(op porcupine.Operation) bool {
		return op.Output.(reply).unknown && op.Input.(step).action == actRenew
	})
	history = boundUnknown(history)
	if len(history) > maxPiece {
		return fmt.Sprintf("drivertest: a piece of %d operations is too long to check", len(history))
	}
	switch porcupine.CheckOperationsTimeout(mutexModel(strict), history, linearTimeout) {
	case porcupine.Ok:
		return ""
	case porcupine.Illegal:
		return "P1: no order of the operations explains the replies of an owner-checked, fenced mutex (P1, P3, P4, P6)"
	}
	return "drivertest: the linearizability checker did not finish"
}
