package vote

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Answer is what a node says of its vote.
type Answer uint8

// The answers.
const (
	Lost    Answer = iota // none came in time: the node may have the vote
	Given                 // the node has given its vote, or has renewed it and has the token on record
	Refused               // the node certainly does not have the vote
	Broken                // the same, because an operator broke it
)

// Reply is an answer with what came with it.
type Reply struct {
	Answer Answer
	Token  driver.Token  // that a vote has brought
	Valid  time.Duration // for how long the node lets its vote count; 0: for the TTL
}

// Phase is a stage of an attempt or of a renewal.
type Phase uint8

// The phases. Those from Won on are final.
const (
	Asking  Phase = iota // for votes
	Writing              // the token, to a majority
	Won                  // the attempt is granted, or the hold is extended: tell the caller
	Over                 // the attempt has failed, or a majority does not have the hold: withdraw all votes
	Failed               // this renewal does not extend the hold; a later one may do it
)

// Step is what the client is to do now. Nodes are to be asked more: in an attempt to record the token, each if it
// still has the vote; in a renewal for their votes.
type Step struct {
	Now   Phase // the final phase that has just begun, or Asking
	Nodes Set
}

// poll is what attempts and renewals have in common: all nodes are asked at the same time, and each answers.
type poll struct {
	Rules Rules
	TTL   time.Duration  // of the hold, or the shortest time for which a node lets its vote count
	Sent  driver.Instant // before the first request
	Phase Phase

	Given   Set // have given or renewed their votes
	Refused Set // certainly do not have the vote
	Silent  Set // have not answered in time
	Asked   Set // were asked more
}

// Until returns the end of the hold's validity, if the attempt is granted or the hold extended.
func (p *poll) Until() driver.Instant { return p.Sent.Add(Valid(p.TTL)) }

// unheard returns the nodes that have not answered yet.
func (p *poll) unheard() Set { return p.Rules.All() &^ (p.Given | p.Refused | p.Silent) }

// hear takes in the answer of a node. It returns false if the node has answered before.
func (p *poll) hear(node int, r Reply) bool {
	n := Of(node)
	if p.unheard()&n == 0 {
		return false
	}
	switch r.Answer {
	case Lost:
		p.Silent |= n
	case Given:
		p.Given |= n
		if r.Valid > 0 {
			p.TTL = min(p.TTL, r.Valid)
		}
	default:
		p.Refused |= n
	}
	return true
}

// Attempt is one attempt to take a name, made by Begin. Its client asks all nodes for their votes at the same time,
// each with a time-out far below the TTL, and tells what each answers.
//
// With tokens, a node's vote brings a token higher than all that the node knows of for the name. The highest of a
// majority's becomes the token of the grant, which counts only when a majority has it on record. So the next
// majority, which has a node in common with that one, brings a higher one.
type Attempt struct {
	poll
	Counted Set                    // have given their votes, and not failed to record the token
	Token   driver.Token           // of the grant; 0: not decided, or there are none
	Written Set                    // have it on record
	high    [MaxNodes]driver.Token // what each vote brought
}

// Begin returns an attempt whose requests are sent from now on.
func (r Rules) Begin(ttl time.Duration, now driver.Instant) Attempt {
	return Attempt{poll: poll{Rules: r, TTL: ttl, Sent: now}}
}

// Answer takes in a node's answer to the request for its vote.
func (a *Attempt) Answer(node int, r Reply, now driver.Instant) Step {
	if !a.hear(node, r) {
		return Step{}
	}
	if r.Answer == Given {
		a.Counted |= Of(node)
	}
	if a.Rules.Tokens {
		a.high[node] = r.Token
	}
	return a.decide(now)
}

// Wrote takes in whether a node has recorded the token. If it has not, its vote does not count any more.
func (a *Attempt) Wrote(node int, ok bool, now driver.Instant) Step {
	if ok {
		a.Written |= Of(node)
	} else {
		a.Counted &^= Of(node)
	}
	return a.decide(now)
}

// decide returns what follows from the answers so far.
func (a *Attempt) decide(now driver.Instant) Step {
	if a.Phase >= Won {
		return Step{}
	}
	if a.Phase == Asking && a.Rules.majority(a.Counted) {
		a.Phase = Writing
		for node, token := range a.high {
			if a.Counted.Has(node) {
				a.Token = max(a.Token, token)
			}
		}
	}
	if a.Phase == Writing {
		for node, token := range a.high {
			if a.Counted.Has(node) && token == a.Token {
				a.Written |= Of(node) // it is the node's own, or there are none
			}
		}
	}
	won, late := a.Rules.majority(a.Written), now >= a.Until()
	switch {
	case won && late, !a.Rules.majority(a.Counted | a.unheard()):
		return a.GiveUp()
	case won:
		a.Phase = Won
		return Step{Now: Won}
	case a.Phase == Writing:
		more := a.Counted &^ (a.Written | a.Asked)
		a.Asked |= more
		return Step{Nodes: more}
	}
	return Step{}
}

// GiveUp ends the attempt, if it is not decided yet.
func (a *Attempt) GiveUp() Step {
	if a.Phase >= Won {
		return Step{}
	}
	a.Phase = Over
	return Step{Now: Over}
}

// Renewal is one attempt to extend a hold, made by Renew. Its client asks all nodes to renew their votes, and tells
// what each answers.
//
// A node may have lost its vote: it restarted without memory, or no renewal reached it for a while. When a
// majority has renewed the hold, such a node is asked for its vote again, and the next renewal counts that vote.
// So a hold outlives the nodes one after the other.
//
// No renewal revives a hold. A's validity ends, and B takes the name and releases it. Votes that were restored
// must not give the name back to A, so a renewal wins only while the hold is valid.
type Renewal struct {
	poll
	Valid  driver.Instant // the end of the hold's validity when the first request was sent
	Broken Set            // of those that do not have the vote, the ones where an operator broke it
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
	if a.Phase == Asking {
		switch {
		case a.Rules.majority(a.Given) && now < a.Valid && now < a.Until():
			a.Phase = Won
		case a.Rules.majority(a.Refused):
			a.Phase = Over
		case a.unheard() == 0:
			a.Phase = Failed
		}
		step.Now = a.Phase
	}
	if a.Phase == Won {
		step.Nodes = a.Refused &^ (a.Broken | a.Asked)
		a.Asked |= step.Nodes
	}
	return step
}
