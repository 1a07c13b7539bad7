package quorum_test

import (
	"errors"

	"github.com/holdfastlock/holdfast/internal/test/explore"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// withdrawal is what becomes of one client's vote for one hold at one node, in the code as it ships. Requests and
// withdrawals are in flight until the node executes them, and answers get lost.
type withdrawal struct {
	ballot vote.Ballot
	over   bool
	asks   int8 // that the client may still send
	losses int8 // answers that may still get lost
	others int8 // times that another client may still take the node's vote
	lost   bool // an answer was lost

	asked  progress // the request whose answer the client waits for
	gives  bool     // asked: the answer
	strays int8     // requests under way whose answers the client does not wait for
	undo   progress // the withdrawal

	holder    int8 // of the node's vote: 0: nobody, 1: the client, 2: another
	tombstone bool // the node refuses the client's requests
	leaves    bool // undo: it leaves a tombstone
}

// progress is how far a request has come.
type progress int8

const (
	none progress = iota
	sent
	done
)

func withdrawals() explore.Model[withdrawal, withdrawal] {
	return explore.Model[withdrawal, withdrawal]{
		Start: withdrawal{asks: 3, losses: 3, others: 2},
		Key:   func(w withdrawal) withdrawal { return w },
		Next:  withdrawal.next,
		Check: func(w withdrawal) error {
			switch free := w.over && w.ballot.Free() && w.undo == none; {
			case free && (w.holder == 1 || w.strays > 0 && !w.tombstone):
				return errors.New("P6: a hold that is over and withdrawn has left a vote, or leaves one later")
			case w.tombstone && !w.lost:
				return errors.New("P6: a withdrawal leaves a tombstone, although every request was answered")
			}
			return nil
		},
		End: func(w withdrawal) error {
			if !w.ballot.Free() {
				return errors.New("P6: a vote that may be there is never withdrawn")
			}
			return nil
		},
	}
}

// take is the node's step when a request of the client comes. It reports whether the client has the vote.
func (w *withdrawal) take() bool {
	if w.holder == 0 && !w.tombstone {
		w.holder = 1
	}
	return w.holder == 1
}

func (w withdrawal) next() (steps []explore.Step[withdrawal]) {
	can := func(when bool, name string, do func(*withdrawal)) {
		if when {
			to := w
			do(&to)
			steps = append(steps, explore.Step[withdrawal]{Name: name, To: to})
		}
	}
	// The first request is the attempt's; the others are those of renewals that find the vote gone.
	can(!w.over && w.asks > 0 && w.asked == none, "the client asks", func(w *withdrawal) {
		w.ballot.Ask()
		w.asks, w.asked = w.asks-1, sent
	})
	can(w.asked == sent, "the node executes the request", func(w *withdrawal) { w.gives, w.asked = w.take(), done })
	can(w.asked == done, "the answer arrives", func(w *withdrawal) {
		answer := vote.Refused
		if w.gives {
			answer = vote.Given
		}
		w.ballot.Answered(answer)
		w.asked, w.gives = none, false
	})
	can(w.asked != none && w.losses > 0, "the client waits no more for the answer", func(w *withdrawal) {
		if w.asked == sent {
			w.strays++
		}
		w.ballot.Answered(vote.Lost)
		w.asked, w.gives, w.lost, w.losses = none, false, true, w.losses-1
	})
	can(w.strays > 0, "a late request arrives", func(w *withdrawal) {
		w.strays--
		w.take()
	})
	can(!w.over, "the client releases", func(w *withdrawal) { w.over = true })
	can(w.over && w.undo == none && w.ballot.Owed(), "the client withdraws", func(w *withdrawal) {
		w.undo, w.leaves = sent, !w.ballot.Held || w.ballot.Stray
	})
	can(w.undo == sent, "the node executes the withdrawal", func(w *withdrawal) {
		if w.holder == 1 {
			w.holder = 0
		}
		w.undo, w.tombstone, w.leaves = done, w.tombstone || w.leaves, false
	})
	can(w.undo == done, "the node confirms the withdrawal", func(w *withdrawal) {
		w.ballot.Withdrawn()
		w.undo = none
	})
	can(w.undo != none && w.losses > 0, "the withdrawal, or its answer, is lost", func(w *withdrawal) {
		w.undo, w.leaves, w.losses = none, false, w.losses-1
	})
	can(w.holder == 0 && w.others > 0, "another takes the vote", func(w *withdrawal) { w.holder, w.others = 2, w.others-1 })
	can(w.holder == 2, "the other releases", func(w *withdrawal) { w.holder = 0 })
	can(w.holder == 1, "the vote ends", func(w *withdrawal) { w.holder = 0 })
	return steps
}
