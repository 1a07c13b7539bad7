package etcdlock

import (
	"hash/maphash"
	"iter"
	"math/bits"
)

// index holds a client's records, to be found by the name. It is a hash table of
// lists that grows and shrinks by one list at a time (linear hashing): a map needs 30
// to 60 bytes for each record, this one 4 to 9; nobody waits while ten thousand of them
// move at once, and it does not stay large when they are gone (P9). Not safe for
// concurrent use.
type index struct {
	seed  maphash.Seed
	lists []*record // the first of each; linked by their next
	n     int
}

func newIndex() index { return index{seed: maphash.MakeSeed(), lists: make([]*record, 1)} }

// list returns where the list begins on which the records of a name are, among others.
func (x *index) list(name string) **record {
	size := uint64(1) << bits.Len(uint(len(x.lists)-1)) // the power of two that is not less
	i := maphash.String(x.seed, name) & (size - 1)
	if i >= uint64(len(x.lists)) {
		i -= size / 2
	}
	return &x.lists[i]
}

// parent returns which list was divided when the last one was made.
func (x *index) parent() int {
	last := len(x.lists) - 1
	return last - 1<<(bits.Len(uint(last))-1)
}

// spread puts the records of a list where they belong now.
func (x *index) spread(r *record) {
	for r != nil {
		next, list := r.next, x.list(r.name)
		r.next, *list = *list, r
		r = next
	}
}

// add adds a record; one that is in it stays so.
func (x *index) add(r *record) {
	if *x.link(r) != nil {
		return
	}
	if x.n++; x.n > 2*len(x.lists) {
		x.lists = append(x.lists, nil)
		i := x.parent()
		divided := x.lists[i]
		x.lists[i] = nil
		x.spread(divided)
	}
	x.spread(r)
}

// remove takes a record out; one that is not in it stays so.
func (x *index) remove(r *record) {
	link := x.link(r)
	if *link == nil {
		return
	}
	*link, r.next = r.next, nil
	x.n--
	if last := len(x.lists) - 1; x.n < last {
		joined := x.lists[last]
		x.lists[last] = nil
		x.lists = x.lists[:last]
		x.spread(joined)
		if cap(x.lists) > 64 && last < cap(x.lists)/4 {
			x.lists = append(make([]*record, 0, cap(x.lists)/2), x.lists...)
		}
	}
}

// link returns the pointer to a record from the one before it on its list, or, if
// the record is not there, the nil at its end.
func (x *index) link(r *record) **record {
	link := x.list(r.name)
	for *link != nil && *link != r {
		link = &(*link).next
	}
	return link
}

// find returns the record of an owner, or nil.
func (x *index) find(name, owner string) *record {
	for r := *x.list(name); r != nil; r = r.next {
		if r.owner == owner && r.name == name {
			return r
		}
	}
	return nil
}

// named returns the records of a name, in no order.
func (x *index) named(name string) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for r := *x.list(name); r != nil; r = r.next {
			if r.name == name && !yield(r) {
				return
			}
		}
	}
}

// all returns all records, in no order. None may be added or removed meanwhile.
func (x *index) all() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, r := range x.lists {
			for ; r != nil; r = r.next {
				if !yield(r) {
					return
				}
			}
		}
	}
}
