package etcdlock

import "iter"

// index holds a client's records, to be found by the name. Not safe for concurrent use.
type index struct {
	byName map[string]*record // the first of a name; linked by their next
	most   int                // how many names the map has had
}

func newIndex() index { return index{byName: map[string]*record{}} }

// add adds a record; one that is in it stays so.
func (x *index) add(r *record) {
	for other := range x.named(r.name) {
		if other == r {
			return
		}
	}
	r.next = x.byName[r.name]
	x.byName[r.name] = r
	x.most = max(x.most, len(x.byName))
}

// remove takes a record out; one that is not in it stays so.
func (x *index) remove(r *record) {
	first := x.byName[r.name]
	link := &first
	for *link != nil && *link != r {
		link = &(*link).next
	}
	if *link == nil {
		return
	}
	*link, r.next = r.next, nil
	if first != nil {
		x.byName[r.name] = first
		return
	}
	delete(x.byName, r.name)
	if len(x.byName) == 0 && x.most > 1000 {
		*x = newIndex() // a map does not shrink (P9)
	}
}

// find returns the record of an owner, or nil.
func (x *index) find(name, owner string) *record {
	for r := x.byName[name]; r != nil; r = r.next {
		if r.owner == owner {
			return r
		}
	}
	return nil
}

// named returns the records of a name, in no order.
func (x *index) named(name string) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for r := x.byName[name]; r != nil && yield(r); r = r.next {
		}
	}
}

// all returns all records, in no order. None may be added or removed meanwhile.
func (x *index) all() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, r := range x.byName {
			for ; r != nil; r = r.next {
				if !yield(r) {
					return
				}
			}
		}
	}
}
