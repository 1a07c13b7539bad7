package vote

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Kept is what a node says to the renewal of its vote.
type Kept uint8

// The answers.
const (
	Unknown Kept = iota // none came in time
	Renewed             // the vote lasts for the TTL again, and the node has the token on record
	Gone                // the node does not have the vote
	Broken              // an operator broke it
)

// Renewal is one attempt to extend a hold. Its client asks all nodes to renew their votes, and tells
// what each answers. Make one by Renew.
//
// A node may have lost its vote: it restarted without memory, or no renewal reached it for a while. Such
// a vote is asked for again, so that a hold outlives the nodes one after the other. A vote that was
// restored counts if the node counts. A node that does not count yet is asked only when a majority is
// held without it, so that only a hold that is valid anyhow takes its place there.
//
// No renewal revives a hold: A must not have the name back by restored votes after its validity has ended
// and B has had the name. So Extend comes only while the hold is valid, and nothing is restored after that.
type Renewal struct {
	Rules Rules
	TTL   time.Duration
	Sent  driver.Instant // before the first request
	Valid driver.Instant // the end of the hold's validity by then
	Phase Phase          // Asking, Won or Over

	Renewed Set // nodes that have renewed the vote
	Counted Set // nodes whose votes count: renewed, or restored with the token on record
	Gone    Set // nodes that do not have the vote
	Later   Set // of these, the ones that do not count yet
	Refused Set // of these, the ones that have given it to another since
	Broken  Set // nodes where an operator broke it
	Silent  Set // nodes that have not answered the renewal in time, or have not restored the vote in time
	Asked   Set // nodes that were asked to restore the vote
	Placed  Set // nodes that have restored it
	Writing Set // of these, the ones that were told to record the token
}

// Renew returns a renewal of a hold whose validity so far ends at valid. Its requests are sent from now
// on.
func (r Rules) Renew(ttl time.Duration, valid, now driver.Instant) Renewal {
	return Renewal{Rules: r, TTL: ttl, Sent: now, Valid: valid}
}

// Until returns the end of the hold's validity, if it is extended.
func (a *Renewal) Until() driver.Instant { return a.Sent.Add(Valid(a.TTL)) }

// Trust takes in for how long a node lets a vote count that it has renewed or given again, before Answer or
// Restored tells so. 0: for the TTL.
func (a *Renewal) Trust(valid time.Duration) {
	if valid > 0 {
		a.TTL = min(a.TTL, valid)
	}
}

// Answer takes in a node's answer to the renewal, and what the client knows of the node's memory.
func (a *Renewal) Answer(node int, kept Kept, m Memory, now driver.Instant) Step {
	n := Of(node)
	if (a.Renewed|a.Gone|a.Broken)&n != 0 || a.Silent&n != 0 && kept == Unknown {
		return Step{}
	}
	a.Silent &^= n
	switch kept {
	case Renewed:
		a.Renewed |= n
		if a.Rules.Counts(m, a.Sent) {
			a.Counted |= n
		}
	case Gone:
		a.Gone |= n
		if !a.Rules.Counts(m, a.Sent) {
			a.Later |= n
		}
	case Broken:
		a.Broken |= n
	default:
		a.Silent |= n
	}
	return a.decide(now)
}

// Restored takes in a node's answer to the request to give its vote again, and what the client knows of
// the node's memory, the answer included. Refused says that another has the vote, or that the request was
// withdrawn; any other failure is Lost.
func (a *Renewal) Restored(node int, answer Answer, m Memory, now driver.Instant) Step {
	n := Of(node)
	if !a.Asked.Has(node) || (a.Placed|a.Refused)&n != 0 {
		return Step{}
	}
	a.Silent &^= n
	switch answer {
	case Given:
		a.Placed |= n
		if !a.Rules.Counts(m, a.Sent) {
			a.Later |= n
		}
		if a.Rules.Tokens {
			a.Writing |= n
			return Step{Write, n}
		}
		a.place(n)
	case Refused:
		a.Refused |= n
	default:
		a.Silent |= n
	}
	return a.decide(now)
}

// Wrote takes in whether a node that has restored its vote has recorded the token.
func (a *Renewal) Wrote(node int, ok bool, now driver.Instant) Step {
	n := Of(node)
	if !a.Writing.Has(node) {
		return Step{}
	}
	a.Writing &^= n
	if ok {
		a.place(n)
	} else {
		a.Silent |= n
	}
	return a.decide(now)
}

// place counts a restored vote, if the node counts.
func (a *Renewal) place(n Set) { a.Counted |= n &^ a.Later }

// decide returns what follows from the answers so far.
func (a *Renewal) decide(now driver.Instant) Step {
	valid := now < a.Valid && now < a.Until()
	switch {
	case a.Phase == Over, a.Phase == Won && !valid:
		return Step{}
	case a.Phase == Won:
		return a.restore(Restore, a.Gone)
	case valid && a.Rules.majority(a.Counted):
		a.Phase = Won
		step := a.restore(Extend, a.Gone)
		step.Do = Extend
		return step
	}
	all := a.Rules.All()
	against := a.Refused | a.Broken // will not vote for this hold again
	hope := all &^ (against | a.Later | a.Silent | a.Renewed&^a.Counted)
	over := !a.Rules.majority(hope)
	if !valid {
		against |= a.Gone
		unheard := all &^ (a.Renewed | a.Gone | a.Broken | a.Silent)
		over = a.Rules.majority(all &^ (against | unheard)) // whatever the rest says, the hold may be there
	}
	switch {
	case !a.Rules.majority(all &^ against):
		a.Phase = Over
		return Step{Lose, all}
	case over:
		a.Phase = Over
		// So many nodes do not have the vote, nor were asked for it again, that the hold ends before they count. A node that
		// has refused it is none of them while the hold is valid: nobody else can have a majority, so the other that it
		// has voted for will take its request back.
		lost := a.Gone&^a.Asked | a.Broken
		if !valid {
			lost |= against
		}
		if !a.Rules.majority(all &^ lost) {
			return Step{Lose, all}
		}
		return Step{Do: Fail}
	case !valid:
		return Step{}
	}
	return a.restore(Restore, a.Gone&^a.Later)
}

// restore returns which of the nodes are to be asked for their votes now: those that were not asked yet.
func (a *Renewal) restore(do Do, nodes Set) Step {
	if nodes &^= a.Asked; nodes == 0 {
		return Step{}
	}
	a.Asked |= nodes
	return Step{do, nodes}
}
