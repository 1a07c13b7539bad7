package server

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Release gives locks back, and withdraws requests.
func (l locks) Release(ctx context.Context, r *cellv1.ReleaseRequest) (*cellv1.ReleaseResponse, error) {
	s, err := l.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	removals, outcomes, never := l.find(s, r.Locks)
	for _, learn := range []func() error{
		func() error { return l.mirror.reach(ctx, l.written.Load()) }, // what this member has granted just now
		func() error { return l.sync(ctx) },
	} {
		if slices.ContainsFunc(removals, func(r removal) bool { return r.entry == nil }) {
			if err := learn(); err != nil {
				return nil, ofStore(ctx, err)
			}
			removals, outcomes, never = l.find(s, r.Locks)
		}
	}
	if err := callerOf(ctx).mayWithdraw(ctx, never); err != nil {
		return nil, err
	}
	done, err := l.remove(ctx, removals)
	for i := range done {
		if done[i] {
			outcomes[i] = cellv1.Reason_REASON_UNSPECIFIED
		}
	}
	return &cellv1.ReleaseResponse{Outcomes: outcomes}, err
}

// find returns what is to go for a session's requests, without an entry where there is none or one with another token. why
// says what has become of those that do not go, and never how many are withdrawn that are not there.
func (f *front) find(s *session, all []*cellv1.Release) (removals []removal, why []cellv1.Reason, never int) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	for _, r := range all {
		one := removal{
			name: r.Name, owner: ownerOf(s.id, r.Request), tombstone: r.Retried || r.Token == 0, unused: r.Unused || r.Token == 0,
		}
		if e := f.mirror.nameLocked(r.Name).find(one.owner); e != nil && (r.Token == 0 || e.Created == layout.Created(driver.Token(r.Token))) {
			one.entry = e
		} else if one.tombstone {
			never++
		}
		removals, why = append(removals, one), append(why, f.mirror.whyLocked(r.Name, one.owner))
	}
	return removals, why, never
}

// removal is an entry that is to go.
type removal struct {
	entry       *entry        // nil: there is none, but a tombstone may be wanted
	tombstone   bool          // a request of that name and owner may arrive yet
	name, owner string        // of the tombstone
	unused      bool          // there is no minimum hold
	closed      time.Duration // for how long the name is to stay closed at least
	tell        bool          // its client has not asked for it
	place       int64         // if not 0, only as changed last then, as a place: another member may have told of a whole hold (P1)
}

// removalsAtOnce is how many entries one transaction deletes.
const removalsAtOnce = table.MaxRemovals / 2

// remove deletes the keys of entries, and says for each whether it was there. A request that arrives
// later finds its tombstone (P6).
func (f *front) remove(ctx context.Context, all []removal) (done []bool, err error) {
	done = make([]bool, len(all))
	for first := 0; first < len(all); first += removalsAtOnce {
		some := all[first:min(first+removalsAtOnce, len(all))]
		for again := true; again; {
			if again, err = f.removeSome(ctx, some, done[first:]); err != nil {
				return nil, ofStore(ctx, err)
			}
		}
	}
	return done, nil
}

// removeSome deletes them by one transaction. It is to be called again if a request has arrived before its tombstone,
// which was under way: its entry is found now.
func (f *front) removeSome(ctx context.Context, some []removal, done []bool) (again bool, err error) {
	keys := f.removals(some)
	resp, err := f.put(ctx, table.Remove(keys, 0))
	if err == nil && slices.ContainsFunc(some, func(r removal) bool { return r.entry == nil && r.tombstone }) {
		err = f.mirror.reach(ctx, resp.Header.Revision)
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	for i := range some {
		switch r := &some[i]; {
		case r.entry != nil && err == nil && table.Removed(resp, len(keys), i):
			done[i], r.entry, r.tombstone = true, nil, false
		case r.entry != nil:
			r.entry.released = false
			r.entry, r.tombstone = nil, false
		case r.tombstone && err == nil:
			r.entry = f.mirror.nameLocked(r.name).find(r.owner)
			again = again || r.entry != nil
		}
	}
	return again, err
}

// removals returns the keys that are to go. The mirror tells no client of what its own member releases.
func (f *front) removals(some []removal) []table.Removal {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	keys := make([]table.Removal, len(some))
	for i, r := range some {
		k := &keys[i]
		if r.tombstone {
			k.Tombstone = tombstoneOf(r.name, r.owner)
		}
		if r.entry == nil {
			continue
		}
		r.entry.released = !r.tell
		k.Key, k.Created, k.Mod = r.entry.Key, r.entry.Created, r.place
		left := r.closed
		if r.entry.holds && !r.entry.Value.Closed { // its minimum may not be over
			left = max(left, r.entry.opens().Sub(f.clock.Now()))
		}
		if left > 0 && !r.unused {
			k.Closed = closedText(r.entry, left)
		}
	}
	return keys
}

// Downgrade makes a shared hold of an exclusive one. The key stays, and so does its place in the order:
// nothing comes between.
func (l locks) Downgrade(ctx context.Context, m *cellv1.DowngradeRequest) (*cellv1.DowngradeResponse, error) {
	token, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if v.Mode == driver.Slot.String() {
			return refuse(cellv1.Reason_REASON_MISMATCH, "%.80q is a semaphore", m.Name)
		}
		v.Mode = driver.Shared.String()
		return nil
	})
	return &cellv1.DowngradeResponse{Token: int64(token)}, err
}

// SetNote changes the note of a hold, and puts the token in use on record.
func (l locks) SetNote(ctx context.Context, m *cellv1.SetNoteRequest) (*cellv1.SetNoteResponse, error) {
	_, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if m.Note != nil {
			v.Note = *m.Note
		}
		if m.Token != 0 {
			v.HandedOver = max(v.HandedOver, int(driver.Token(m.Token)&driver.Token(layout.Block()-1)))
		}
		return nil
	})
	return &cellv1.SetNoteResponse{}, err
}

// change edits the value of a hold's key, and returns its token. The value is put only if the key is as it was when it was
// read: a change that is late must not undo another one.
func (f *front) change(ctx context.Context, credential, name, request string, edit func(*table.Value) error) (token driver.Token, err error) {
	s, err := f.session(ctx, credential)
	if err != nil {
		return 0, err
	}
	_, err = f.changed(ctx, "", toWrite, func() (*etcdserverpb.TxnRequest, error) {
		owner := ownerOf(s.id, request)
		e := f.mirror.nameLocked(name).find(owner)
		if e == nil || !e.holds {
			return nil, refuse(f.mirror.whyLocked(name, owner), "the session does not hold %.80q", name)
		}
		v := e.Value
		token = e.tokenOf()
		err := edit(&v)
		return table.Change(e.Key, e.Mod, layout.Text(v)), err
	})
	return token, err
}
