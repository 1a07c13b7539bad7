package quorum

import (
	"sync/atomic"
	"time"
)

// pace says how soon a waiter asks the nodes again. Nobody tells a waiter that the name is free, so it
// gets a name that is often taken only if it asks often. But the more often waiters ask, the more of them ask
// at once when the name becomes free; then they split the votes, and nobody gets it. So the pause is drawn
// from how long an attempt takes, and grows with the share of attempts that split the votes.
type pace struct {
	took  atomic.Int64 // nanoseconds: a running mean
	split atomic.Int64 // the share of attempts that split the votes, in millionths: a running mean
}

// The pause, in attempts: when no votes are split, and how much more when all are.
const (
	usualPause = 8
	splitPause = 24
)

// shortestPoll is the shortest pause.
const shortestPoll = 2 * time.Millisecond

// note takes in an attempt. Two at once may forget one of them.
func (p *pace) note(took time.Duration, split bool) {
	last := p.took.Load()
	if last == 0 {
		last = int64(took)
	}
	p.took.Store(last + (int64(took)-last)/8)
	share := int64(0)
	if split {
		share = 1_000_000
	}
	was := p.split.Load()
	p.split.Store(was + (share-was)/8)
}

// poll returns the pause, at most longest.
func (p *pace) poll(longest time.Duration) time.Duration {
	attempts := usualPause + splitPause*p.split.Load()/1_000_000
	return min(max(time.Duration(p.took.Load()*attempts), shortestPoll), longest)
}

// split reports whether the attempt got some votes, and too few.
func (a *attempt) split() bool {
	n := a.vote.Given.Len()
	return n > 0 && n < a.q.rules.Majority() && a.vote.Refused != 0
}
