package zklock

import (
	"errors"
	"math"
	"testing"

	"github.com/holdfastlock/holdfast/internal/explore"
)

// place of a node in the model's directory.
type modelNode struct {
	number int32
	owner  int8 // 0, 1: of the session that is checked; 2: of another; -1: none
}

// modelReply is what the server has sent and the session has not taken in.
type modelReply struct {
	kind   byte // made, read, deleted, or the event removed
	owner  int8
	number int32
	first  bool
	conn   int8
}

const (
	replyMade byte = iota + 1
	replyRead
	replyDeleted
	eventRemoved
)

// ownerState is how far a request of one of the session's two owners has come.
type ownerState struct {
	phase  byte
	reads  bool // the directory is read with the creation
	number int32
}

const (
	phaseIdle byte = iota
	phaseAsked
	phaseReads
	phaseHolds
	phaseWaits
	phaseDeletes
)

// numbersState is a state: a directory at a server, others who use it, and one session.
type numbersState struct {
	counter int32
	nodes   [5]modelNode // in their order
	armed   bool         // the server has the session's watch

	numbers
	watched bool // the session believes so
	owners  [2]ownerState
	replies [8]modelReply
	conn    int8

	asks, others, removals, failovers int8 // that are left
	wrong                             bool // a node was taken for the first and is not
}

type numbersWorld struct {
	deaf  bool // a planted mistake: removals are not told
	blind bool // another: connections are not told apart
	start numbersState
}

var errNotFirst = errors.New("P1: a node is taken for the first, and another is before it")

func (w *numbersWorld) model() explore.Model[numbersState, numbersState] {
	return explore.Model[numbersState, numbersState]{
		Start: w.start,
		Key:   func(s numbersState) numbersState { return s },
		Next:  w.next,
		Check: func(s numbersState) error {
			if s.wrong {
				return errNotFirst
			}
			return nil
		},
	}
}

func (s *numbersState) count() (n int) {
	for n < len(s.nodes) && s.nodes[n].owner >= 0 {
		n++
	}
	return n
}

func (s *numbersState) create(owner int8) int32 {
	number := s.counter
	s.counter++
	s.nodes[s.count()] = modelNode{number, owner}
	return number
}

func (s *numbersState) remove(i int) {
	copy(s.nodes[i:], s.nodes[i+1:])
	s.nodes[len(s.nodes)-1] = modelNode{owner: -1}
}

func (s *numbersState) at(owner int8) int {
	for i, n := range s.nodes {
		if n.owner == owner {
			return i
		}
	}
	return -1
}

func (s *numbersState) send(r modelReply) {
	i := 0
	for s.replies[i].kind != 0 {
		i++
	}
	r.conn = s.conn
	s.replies[i] = r
}

// next returns what can happen.
func (w *numbersWorld) next(from numbersState) (steps []explore.Step[numbersState]) {
	can := func(name string, do func(s *numbersState)) {
		to := from
		do(&to)
		steps = append(steps, explore.Step[numbersState]{Name: name, To: to})
	}
	for owner := range int8(2) {
		w.ownerSteps(from, owner, can)
	}
	n := from.count()
	if from.others > 0 && n < len(from.nodes) {
		can("another asks", func(s *numbersState) { s.others--; s.create(2) })
	}
	for i := range n {
		if from.nodes[i].owner == 2 {
			can("another goes", func(s *numbersState) { s.remove(i) })
		}
	}
	if n == 0 && from.removals > 0 {
		can("the directory is removed, and made again", func(s *numbersState) {
			s.removals--
			s.counter = 0
			if s.armed {
				s.armed = false
				s.send(modelReply{kind: eventRemoved})
			}
		})
	}
	quiet := from.replies[0].kind == 0
	if !quiet {
		can("an answer comes", w.take)
	} else if from.failovers > 0 {
		can("another server leads, whose counter is behind", func(s *numbersState) {
			s.failovers--
			s.conn++
			s.counter--
		})
	}
	return steps
}

// ownerSteps are what an owner asks for. The server does it at once; the answers come later.
func (w *numbersWorld) ownerSteps(from numbersState, owner int8, can func(string, func(*numbersState))) {
	switch o := from.owners[owner]; o.phase {
	case phaseIdle:
		if from.asks > 0 && from.count() < len(from.nodes) {
			can("an owner asks", func(s *numbersState) {
				s.asks--
				o := &s.owners[owner]
				o.phase, o.reads = phaseAsked, !s.predicts()
				o.number = s.create(owner)
				s.send(modelReply{kind: replyMade, owner: owner, number: o.number})
				if o.reads {
					s.send(modelReply{kind: replyRead, owner: owner, number: o.number, first: s.at(owner) == 0})
				}
			})
		}
	case phaseHolds, phaseWaits:
		can("an owner releases", func(s *numbersState) {
			if !s.watched && s.follows && s.first {
				s.watched, s.armed = true, true
			}
			s.owners[owner].phase = phaseDeletes
			s.send(modelReply{kind: replyDeleted, owner: owner, number: o.number})
			s.remove(s.at(owner))
		})
	}
}

// take takes in the oldest answer.
func (w *numbersWorld) take(s *numbersState) {
	r := s.replies[0]
	copy(s.replies[:], s.replies[1:])
	s.replies[len(s.replies)-1] = modelReply{}
	o, conn := &s.owners[r.owner], int(r.conn)
	if w.blind {
		conn = 1
	}
	switch r.kind {
	case replyMade:
		switch first := s.made(r.number, conn); {
		case o.reads:
			o.phase = phaseReads
		case first:
			o.phase = phaseHolds
			s.wrong = s.at(r.owner) != 0
		default:
			o.phase = phaseReads
			s.send(modelReply{kind: replyRead, owner: r.owner, number: r.number, first: s.at(r.owner) == 0})
		}
	case replyRead:
		o.phase = phaseWaits
		if r.first {
			o.phase = phaseHolds
			s.read(r.number, conn)
		}
	case replyDeleted:
		o.phase = phaseIdle
		if s.watched {
			s.deleted(r.number, conn)
		}
	case eventRemoved:
		if !w.deaf {
			s.watched = false
			s.removed()
		}
	}
}

// TestNumbers explores all orders in which two owners of one session, and others, use a directory. A number
// never makes an owner believe that it is the first while it is not, also where the directory is removed, the
// number wraps, or a server takes over whose counter is behind.
func TestNumbers(t *testing.T) {
	t.Parallel()
	start := numbersState{conn: 1, asks: 4, others: 2, removals: 1, failovers: 1}
	for i := range start.nodes {
		start.nodes[i].owner = -1
	}
	wraps := start
	wraps.asks, wraps.counter = 3, math.MaxInt32-1
	proves := func(w numbersWorld) explore.Model[numbersState, numbersState] {
		m := w.model()
		m.Check = func(s numbersState) error {
			for _, o := range s.owners {
				if o.phase == phaseHolds && !o.reads && s.first {
					return errors.New("proven")
				}
			}
			return nil
		}
		return m
	}
	const budget = 1_000_000
	t.Run("right", func(t *testing.T) { (&numbersWorld{start: start}).model().Holds(t, budget) })
	t.Run("the number wraps", func(t *testing.T) { (&numbersWorld{start: wraps}).model().Holds(t, budget) })
	t.Run("some are proven", func(t *testing.T) { proves(numbersWorld{start: wraps}).Breaks(t, budget, "proven") })
	t.Run("removals are not told", func(t *testing.T) { (&numbersWorld{start: start, deaf: true}).model().Breaks(t, budget, "P1: ") })
	t.Run("connections are not told apart", func(t *testing.T) {
		(&numbersWorld{start: start, blind: true}).model().Breaks(t, budget, "P1: ")
	})
}
