package server

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// maxReleases is how many locks one call gives back.
const maxReleases = 1000

// Release gives locks back, and withdraws requests.
func (l locks) Release(ctx context.Context, r *cellv1.ReleaseRequest) (*cellv1.ReleaseResponse, error) {
	if err := checkRelease(r); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	s, err := l.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	outcomes, err := l.release(ctx, s, r.Locks)
	if err != nil {
		return nil, err
	}
	return &cellv1.ReleaseResponse{Outcomes: outcomes}, nil
}

func checkRelease(m *cellv1.ReleaseRequest) error {
	if n := len(m.Locks); n == 0 || n > maxReleases {
		return fmt.Errorf("locks: %d: between 1 and %d are right", n, maxReleases)
	}
	for _, l := range m.Locks {
		if err := driver.CheckName(l.Name); err != nil {
			return err
		}
		if err := checkRequestID(l.Request); err != nil {
			return err
		}
		if l.Token < 0 || l.Token > table.MaxToken {
			return fmt.Errorf("token: %d is none", l.Token)
		}
	}
	return nil
}

// release gives locks back and returns what became of each.
func (f *front) release(ctx context.Context, s *session, all []*cellv1.Release) ([]cellv1.Reason, error) {
	if err := f.reachTokens(ctx, all); err != nil {
		return nil, err
	}
	found := f.find(s, all)
	if slices.Contains(found, nil) { // unless it was put just now
		if err := f.sync(ctx); err != nil {
			return nil, err
		}
		found = f.find(s, all)
	}
	if err := f.ownClosing(ctx, s, found); err != nil {
		return nil, err
	}
	var removals []removal
	for i, r := range all {
		removals = append(removals, removal{
			entry: found[i], tombstone: r.Retried || r.Token == 0, unused: r.Unused || r.Token == 0,
			name: r.Name, owner: ownerOf(s.id, r.Request),
		})
	}
	outcomes := f.missing(removals)
	absent := f.absent(ctx, removals)
	done, err := f.remove(ctx, removals)
	if err == nil && len(absent) > 0 {
		err = f.withdrawAbsent(ctx, removals, absent, done)
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		if done[i] {
			outcomes[i] = cellv1.Reason_REASON_UNSPECIFIED
		} else if outcomes[i] == cellv1.Reason_REASON_UNSPECIFIED {
			outcomes[i] = cellv1.Reason_REASON_NOT_HELD // it went while it was being released
		}
	}
	return outcomes, nil
}

// absent returns which of these are requests that are not there, but may arrive yet, and leaves their tombstones to
// withdrawAbsent. A request without the right to its name does nothing when it arrives, so it needs none.
func (f *front) absent(ctx context.Context, removals []removal) (at []int) {
	for i := range removals {
		if r := &removals[i]; r.entry == nil && r.tombstone {
			r.tombstone = false
			if f.allowed(ctx, r.name, toWrite) == nil {
				at = append(at, i)
			}
		}
	}
	return at
}

// withdrawAbsent withdraws requests that are not there, no more of them than the principal's pace allows. Each
// withdrawal leaves a tombstone for minutes: withdrawals of what was never asked for could fill the cell.
func (f *front) withdrawAbsent(ctx context.Context, removals []removal, at []int, done []bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := callerOf(ctx).pace.withdraw(ctx, len(at)); err != nil {
		return err
	}
	var some []removal
	for _, i := range at {
		r := removals[i]
		r.tombstone = true
		some = append(some, r)
	}
	gone, err := f.remove(ctx, some)
	if err != nil {
		return err
	}
	for n, i := range at {
		done[i] = gone[n]
	}
	return nil
}

// missing says of entries that are not there why.
func (f *front) missing(removals []removal) []cellv1.Reason {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	why := make([]cellv1.Reason, len(removals))
	for i, r := range removals {
		switch {
		case r.entry != nil:
		case f.mirror.tombstones[tombstoneOf(r.name, r.owner)]:
			why[i] = cellv1.Reason_REASON_BROKEN
		default:
			why[i] = cellv1.Reason_REASON_NOT_HELD
		}
	}
	return why
}

// reachTokens waits until the mirror shows the holds that this member has granted just now.
func (f *front) reachTokens(ctx context.Context, all []*cellv1.Release) error {
	newest := int64(0)
	for _, r := range all {
		if created := layout.Created(driver.Token(r.Token)); created <= f.written.Load() {
			newest = max(newest, created)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return ofStore(ctx, f.mirror.reach(ctx, newest))
}

// find returns the entries of a session's requests; nil where there is none, or one with another token.
func (f *front) find(s *session, all []*cellv1.Release) []*entry {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	found := make([]*entry, len(all))
	for i, r := range all {
		e := f.mirror.nameLocked(r.Name).find(ownerOf(s.id, r.Request))
		if e != nil && (r.Token == 0 || e.Created == layout.Created(driver.Token(r.Token))) {
			found[i] = e
		}
	}
	return found
}

// removal is an entry that is to go.
type removal struct {
	entry       *entry // nil: there is none, but a tombstone may be wanted
	tombstone   bool   // a request of its owner may arrive yet
	unused      bool   // there is no minimum hold
	tell        bool   // its client has not asked for it
	place       bool   // not if it has become a whole hold, of which another member may have told by now (P1)
	name, owner string // where entry is nil
}

// remove deletes the keys of entries, and says for each whether it was there. A request that arrives
// later finds its tombstone (P6).
func (f *front) remove(ctx context.Context, all []removal) (done []bool, err error) {
	done = make([]bool, len(all))
	for first := 0; first < len(all); first += removalsAtOnce {
		some := all[first:min(first+removalsAtOnce, len(all))]
		if err := f.removeSome(ctx, some, done[first:]); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// removalsAtOnce is how many entries one transaction deletes, each with its closer.
const removalsAtOnce = table.MaxRemovals / 2

func (f *front) removeSome(ctx context.Context, some []removal, done []bool) error {
	for {
		var tombstones clientv3.LeaseID
		var err error
		for _, r := range some {
			if r.tombstone && tombstones == 0 {
				if tombstones, err = f.tombstones.lease(ctx, f); err != nil {
					return ofStore(ctx, err)
				}
			}
		}
		keys, at := f.removals(some)
		if len(keys) == 0 {
			return nil
		}
		f.noteReleased(some, true)
		resp, err := f.put(ctx, table.Remove(keys, tombstones))
		if err != nil {
			f.noteReleased(some, false)
		}
		if isLeaseNotFound(err) && tombstones != 0 {
			f.tombstones.forget(tombstones)
			continue
		}
		if err != nil {
			return ofStore(ctx, err)
		}
		for n, i := range at {
			if i >= 0 {
				if done[i] = table.Removed(resp, len(keys), n); !done[i] {
					f.noteReleased(some[i:i+1], false)
				}
			}
		}
		strayed, err := f.strayed(ctx, some, resp.Header.Revision)
		if err != nil || !strayed {
			return ofStore(ctx, err)
		}
	}
}

// noteReleased notes that entries are being released by this member, or that this has failed.
func (f *front) noteReleased(some []removal, released bool) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	for _, r := range some {
		if r.entry != nil && !r.tell {
			r.entry.released = released
		}
	}
}

// strayed reports whether a key of a removal's owner has appeared although it was not there before:
// a request that was under way has arrived before its tombstone. Then it is found now.
func (f *front) strayed(ctx context.Context, some []removal, rev int64) (again bool, err error) {
	if !slices.ContainsFunc(some, func(r removal) bool { return r.entry == nil && r.tombstone }) {
		return false, nil
	}
	if err := f.mirror.reach(ctx, rev); err != nil {
		return false, err
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	for i := range some {
		if r := &some[i]; r.entry == nil && r.tombstone {
			if e := f.mirror.nameLocked(r.name).find(r.owner); e != nil {
				r.entry, again = e, true
			}
		}
	}
	return again, nil
}

// removals returns the keys that are to go, and for each the entry that it is of; -1 for a closer.
func (f *front) removals(some []removal) (keys []table.Removal, at []int) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	for i, r := range some {
		var k table.Removal
		if r.tombstone {
			k.Tombstone = r.tombstoneLocked()
		}
		if r.entry == nil {
			if r.tombstone {
				keys, at = append(keys, k), append(at, -1)
			}
			continue
		}
		k.Key, k.Created = r.entry.Key, r.entry.Created
		if r.place {
			k.Lease = clientv3.LeaseID(placeLeaseOf(sessionOf(k.Key)))
		}
		keys, at = append(keys, k), append(at, i)
		c := f.mirror.closerOfLocked(r.entry)
		if c == nil {
			continue
		}
		left, known := f.minimumLeftLocked(r.entry, c)
		if r.unused || !r.entry.holds || known && left <= 0 {
			keys, at = append(keys, table.Removal{Key: c.Key, Created: c.Created, Lease: k.Lease}), append(at, -1)
		}
	}
	return keys, at
}

func (r *removal) tombstoneLocked() string {
	if r.entry != nil {
		return tombstoneOf(r.entry.at.name, r.entry.Value.Owner)
	}
	return tombstoneOf(r.name, r.owner)
}

// withdrawForbidden takes the places and claims of a session away that its principal may not have any more, so
// that none of them becomes a hold. A whole hold stays: somebody relies on it.
func (f *front) withdrawForbidden(ctx context.Context, s *session) error {
	var all []removal
	f.mirror.mu.Lock()
	if p := callerOf(ctx); s.places > 0 && !p.administers() {
		for e := range s.entries {
			if e.isPlace() && !f.mirror.mayLocked(p, e.at.name, toWrite) {
				all = append(all, removal{entry: e, tombstone: true, unused: true, tell: true, place: true})
			}
		}
	}
	f.mirror.mu.Unlock()
	_, err := f.remove(ctx, all)
	return err
}
