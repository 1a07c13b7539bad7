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
