package vote

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Answer is what a node says to a request for its vote.
type Answer uint8

// The answers.
const (
	Lost    Answer = iota // none came in time: the node may have given its vote
	Given                 // the node has given its vote
	Refused               // the node has certainly not given its vote
)

// Phase is a stage of an attempt or of a renewal.
type Phase uint8

// The phases. Won and Over are final.
const (
	Asking  Phase = iota // for votes
	Writing              // the token, to a majority
	Won                  // an attempt is granted, a renewal extends the hold
	Over                 // an attempt is undone, a renewal does not extend the hold
)

// Do is what the client is to do now.
type Do uint8

// What there is to do. Nodes in Step says where.
const (
	Wait    Do = iota // for more answers
	Write             // record the token at the nodes, each if it still has the vote
	Grant             // the attempt is granted: tell its caller
	Undo              // withdraw the votes: given, and those that may have been
	Extend            // the hold is extended: tell its holder. Restore at the nodes, if there are any
	Restore           // ask the nodes for their votes again
	Fail              // the hold is not extended by this renewal; a later one may do it
	Lose              // the hold is gone: a majority can never be had again
)

// Step is what to do, and at which nodes.
type Step struct {
	Do    Do
	Nodes Set
}

// Attempt is one attempt to take a name. Its client asks all nodes for their votes at the same time,
// each with a time-out far below the TTL, and tells what each answers. Make one by Begin.
//
// If grants have tokens, a node's vote brings a token that is higher than all that the node knows of
// for the name, and no lower than its clock. The highest of a majority's becomes the token of the
// grant, which counts only when a majority has it on record. So the next majority, which has a node in
// common with that one, brings a higher one.
type Attempt struct {
	Rules Rules
	TTL   time.Duration
	Sent  driver.Instant // before the first request
	Phase Phase
	Token driver.Token // of the grant; 0: not decided

	Given   Set // have given their votes
	Counted Set // of these, the ones that count
	Refused Set // have certainly not
	Silent  Set // have not answered in time
	Asked   Set // were told to record the token
	Written Set // have recorded it
	Unsure  Set // have not, or have not answered in time

	high [MaxNodes]driver.Token // what each vote brought
}

// Begin returns an attempt whose requests are sent from now on.
func (r Rules) Begin(ttl time.Duration, now driver.Instant) Attempt {
	return Attempt{Rules: r, TTL: ttl, Sent: now}
}

// Until returns the end of the hold's validity, if the attempt is granted.
func (a *Attempt) Until() driver.Instant { return a.Sent.Add(Valid(a.TTL)) }

// Trust takes in for how long a node lets its vote count, before its Answer: the hold counts for no longer than
// any of its votes. 0: for the TTL.
func (a *Attempt) Trust(valid time.Duration) {
	if valid > 0 {
		a.TTL = min(a.TTL, valid)
	}
}

// Answer takes in a node's answer to the request for its vote, what the client knows of the node's
// memory, the answer included, and the token that a vote has brought. An answer that comes after the
// client gave up the node as Lost is told, too.
func (a *Attempt) Answer(node int, answer Answer, m Memory, token driver.Token, now driver.Instant) Step {
	n := Of(node)
	if a.Phase == Over {
		if answer == Refused {
			return Step{}
		}
		return Step{Undo, n} // the withdrawal may have come before it
	}
	if (a.Given|a.Refused)&n != 0 || a.Silent&n != 0 && answer == Lost {
		return Step{}
	}
	a.Silent &^= n
	switch answer {
	case Given:
		a.Given |= n
		a.high[node] = token
		if a.Rules.Counts(m, a.Sent) {
			a.Counted |= n
		}
	case Refused:
		a.Refused |= n
	default:
		a.Silent |= n
	}
	switch a.Phase {
	case Asking:
		return a.count(now)
	case Writing:
		return a.write(now)
	}
	return Step{}
}

// count decides whether the votes are a majority, or cannot become one.
func (a *Attempt) count(now driver.Instant) Step {
	answered := a.Given | a.Refused | a.Silent
	switch {
	case a.Rules.majority(a.Counted) && now >= a.Until():
		return a.undo()
	case a.Rules.majority(a.Counted) && a.Rules.Tokens:
		for node, token := range a.high {
			if a.Counted.Has(node) {
				a.Token = max(a.Token, token)
			}
		}
		a.Phase = Writing
		return a.write(now)
	case a.Rules.majority(a.Counted):
		a.Phase = Won
		return Step{Grant, a.Given}
	case !a.Rules.majority(a.Counted | a.Rules.All()&^answered):
		return a.undo()
	}
	return Step{}
}

// write has the token recorded where it is not, and grants when a majority has it.
func (a *Attempt) write(now driver.Instant) Step {
	for node, token := range a.high {
		if a.Counted.Has(node) && token == a.Token {
			a.Written |= Of(node) // it is the node's own
		}
	}
	if a.Rules.majority(a.Written) {
		if now >= a.Until() {
			return a.undo()
		}
		a.Phase = Won
		return Step{Grant, a.Given}
	}
	answered := a.Given | a.Refused | a.Silent
	if !a.Rules.majority(a.Counted&^a.Unsure | a.Rules.All()&^answered) {
		return a.undo()
	}
	if more := a.Counted &^ a.Written &^ a.Asked; more != 0 {
		a.Asked |= more
		return Step{Write, more}
	}
	return Step{}
}

// Wrote takes in whether a node has recorded the token. It has not if it had the vote no more.
func (a *Attempt) Wrote(node int, ok bool, now driver.Instant) Step {
	n := Of(node)
	if a.Phase != Writing || !a.Asked.Has(node) || (a.Written|a.Unsure)&n != 0 {
		return Step{}
	}
	if ok {
		a.Written |= n
	} else {
		a.Unsure |= n
	}
	return a.write(now)
}

// GiveUp ends the attempt, if it is not decided yet.
func (a *Attempt) GiveUp() Step {
	if a.Phase == Won || a.Phase == Over {
		return Step{}
	}
	return a.undo()
}

// undo withdraws the attempt everywhere but where it has certainly done nothing.
func (a *Attempt) undo() Step {
	a.Phase = Over
	return Step{Undo, a.Rules.All() &^ a.Refused}
}
