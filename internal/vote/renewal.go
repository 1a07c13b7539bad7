package vote

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Renewal is one attempt to extend a hold, made by Renew. Its client asks all nodes to renew their votes, and tells
// what each answers.
//
// A node may have lost its vote: it restarted without memory, or no renewal reached it for a while. When a
// majority has renewed the hold, such a node is asked for its vote again, and the next renewal counts that vote
// if the node counts. So a hold outlives the nodes one after the other.
//
// No renewal revives a hold. A's validity ends, and B takes the name and releases it. Votes that were restored
// must not give the name back to A, so Extend comes only while the hold is valid.
type Renewal struct {
	poll
	Valid  driver.Instant // the end of the hold's validity when the first request was sent
	Broken Set            // of those that do not have the vote, the ones where an operator broke it
	Asked  Set            // of those, the ones that were asked for it again
}

// Renew returns a renewal of a hold whose validity so far ends at valid. Its requests are sent from now
// on.
func (r Rules) Renew(ttl time.Duration, valid, now driver.Instant) Renewal {
	return Renewal{poll: poll{Rules: r, TTL: ttl, Sent: now}, Valid: valid}
}

// Answer takes in a node's answer to the renewal.
func (a *Renewal) Answer(node int, r Reply, now driver.Instant) Step {
	if !a.hear(node, r) {
		return Step{}
	}
	if r.Answer == Broken {
		a.Broken |= Of(node)
	}
	step := Step{}
	switch {
	case a.Phase == Over:
		return step
	case a.Phase == Won:
		step.Do = Restore
	case a.Rules.majority(a.Counted) && now < a.Valid && now < a.Until():
		a.Phase, step.Do = Won, Extend
	case a.Rules.majority(a.Refused):
		a.Phase = Over
		return Step{Do: Lose}
	case a.unheard() == 0:
		a.Phase = Over
		return Step{Do: Fail}
	default:
		return step
	}
	step.Nodes = a.Refused &^ (a.Broken | a.Asked)
	a.Asked |= step.Nodes
	return step
}
