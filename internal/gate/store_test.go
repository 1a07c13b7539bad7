package gate

import (
	"slices"

	"github.com/holdfastlock/holdfast/driver"
)

// request is what a store of the models knows of a hold or a place: enough to
// grant it, to find it, and to see it as somebody else's.
type request struct {
	owner string
	mode  driver.Mode
	queue bool // it is an Enqueue
}

// reply is what the store says to a request.
type reply uint8

const (
	noReply  reply = iota
	granted        // the hold is the owner's
	held           // wait
	void           // the owner was withdrawn or released: nothing will ever be its own
	doubtful       // no answer: it may or may not have been done
)

// store is one name in a store with a queue and direct hand-off. What was
// withdrawn or released must not take effect later (driver.Driver.Release), so
// it remembers owners that have said farewell.
type store struct {
	holds, queue []request
	farewells    []string // sorted
}

func (s *store) clone() store {
	return store{slices.Clone(s.holds), slices.Clone(s.queue), slices.Clone(s.farewells)}
}

func owned(by string) func(request) bool {
	return func(r request) bool { return r.owner == by }
}

func (s *store) holding(owner string) bool { return slices.ContainsFunc(s.holds, owned(owner)) }
func (s *store) queued(owner string) bool  { return slices.ContainsFunc(s.queue, owned(owner)) }

func (s *store) admits(r request) bool {
	return !slices.ContainsFunc(s.holds, func(h request) bool {
		return h.mode == driver.Exclusive || r.mode == driver.Exclusive
	})
}

// ask is Try or Enqueue.
func (s *store) ask(r request) reply {
	switch {
	case slices.Contains(s.farewells, r.owner):
		return void
	case s.holding(r.owner):
		return granted
	case len(s.queue) == 0 && s.admits(r):
		s.holds = append(s.holds, r)
		return granted
	case r.queue && !s.queued(r.owner):
		s.queue = append(s.queue, r)
	}
	return held
}

// forget is Release: it ends the owner's hold or place, and hands over what has
// become free in the same step.
func (s *store) forget(owner string, remember bool) {
	s.holds = slices.DeleteFunc(s.holds, owned(owner))
	s.queue = slices.DeleteFunc(s.queue, owned(owner))
	if at, said := slices.BinarySearch(s.farewells, owner); remember && !said {
		s.farewells = slices.Insert(s.farewells, at, owner)
	}
	for len(s.queue) > 0 && s.admits(s.queue[0]) {
		s.holds = append(s.holds, s.queue[0])
		s.queue = slices.Delete(s.queue, 0, 1)
	}
}

// key appends the store as text.
func (s *store) key(b []byte) []byte {
	for _, list := range [][]request{s.holds, s.queue} {
		for _, r := range list {
			b = append(append(b, r.owner...), '0'+byte(r.mode))
		}
		b = append(b, '/')
	}
	for _, owner := range s.farewells {
		b = append(b, owner...)
	}
	return append(b, '|')
}
