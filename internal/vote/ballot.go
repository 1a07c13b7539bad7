package vote

// Ballot is what a client knows of one node's vote for one hold (P6). At most one request for the vote is under
// way, so that an answer always tells of the last one. The zero value is that of a node that was not asked.
type Ballot struct {
	Asked bool // a request for the vote is under way
	Held  bool // the node has told that it has the vote
	Stray bool // an earlier request got no answer, and may take effect at any time
}

// Ask notes that the node is asked for its vote. It returns false if that is under way already.
func (b *Ballot) Ask() bool {
	if b.Asked {
		return false
	}
	b.Asked, b.Held = true, false
	return true
}

// Answered takes in the node's answer to the request for its vote. A refusal says nothing of the requests
// before it that got no answer.
func (b *Ballot) Answered(a Answer) {
	b.Asked, b.Held, b.Stray = false, a == Given, b.Stray || a == Lost
}

// Owed reports whether a hold that is over must be withdrawn at the node now. If a request is under way the
// client waits for its answer: a withdrawal that comes before the request leaves a tombstone, and while a node
// has tombstones for a name, all requests for it take longer.
func (b *Ballot) Owed() bool { return !b.Asked && (b.Held || b.Stray) }

// Free reports whether the node certainly does not have the vote, and will not give it.
func (b *Ballot) Free() bool { return !b.Asked && !b.Held && !b.Stray }

// Withdrawn notes that the node has confirmed the withdrawal.
func (b *Ballot) Withdrawn() { b.Held, b.Stray = false, false }
