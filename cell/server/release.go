package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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
		if err := cmp.Or(driver.CheckName(l.Name), checkRequestID(l.Request)); err != nil {
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
	found, outcomes := f.find(s, all)
	if slices.Contains(found, nil) { // unless it was put just now
		if err := f.sync(ctx); err != nil {
			return nil, err
		}
		found, outcomes = f.find(s, all)
	}
	var removals []removal
	for i, r := range all {
		removals = append(removals, removal{
			entry: found[i], tombstone: r.Retried || r.Token == 0, unused: r.Unused || r.Token == 0,
			name: r.Name, owner: ownerOf(s.id, r.Request),
		})
	}
	if err := f.mayWithdraw(ctx, removals); err != nil {
		return nil, err
	}
	done, err := f.remove(ctx, removals)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if done[i] {
			outcomes[i] = cellv1.Reason_REASON_UNSPECIFIED
		} else if found[i] != nil {
			outcomes[i] = cellv1.Reason_REASON_NOT_HELD // it went while it was being released
		}
	}
	return outcomes, nil
}

// mayWithdraw waits until the principal may withdraw those requests that are not there: each counts as an ordinary call.
// Each leaves a tombstone for minutes, so withdrawals of what was never asked for could fill the cell.
func (f *front) mayWithdraw(ctx context.Context, removals []removal) error {
	n := 0
	for i := range removals {
		if r := &removals[i]; r.entry == nil && r.tombstone {
			n++
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return callerOf(ctx).pace.withdraw(ctx, n)
}

// reachTokens waits until the mirror shows the holds that this member has granted just now.
func (f *front) reachTokens(ctx context.Context, all []*cellv1.Release) error {
	newest := int64(0)
	for _, r := range all {
		if created := layout.Created(driver.Token(r.Token)); created <= f.written.Load() {
			newest = max(newest, created)
		}
	}
	return ofStore(ctx, f.mirror.reach(ctx, newest))
}

// find returns the entries of a session's requests; nil, and why, where there is none, or one with another token.
func (f *front) find(s *session, all []*cellv1.Release) (found []*entry, why []cellv1.Reason) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	found, why = make([]*entry, len(all)), make([]cellv1.Reason, len(all))
	for i, r := range all {
		owner := ownerOf(s.id, r.Request)
		e := f.mirror.nameLocked(r.Name).find(owner)
		switch {
		case e != nil && (r.Token == 0 || e.Created == layout.Created(driver.Token(r.Token))):
			found[i] = e
		case f.mirror.tombstones[tombstoneOf(r.Name, owner)].broken:
			why[i] = cellv1.Reason_REASON_BROKEN
		default:
			why[i] = cellv1.Reason_REASON_NOT_HELD
		}
	}
	return found, why
}

// removal is an entry that is to go.
type removal struct {
	entry       *entry        // nil: there is none, but a tombstone may be wanted
	tombstone   bool          // a request of its owner may arrive yet
	unused      bool          // there is no minimum hold
	closed      time.Duration // for how long the name is to stay closed at least
	tell        bool          // its client has not asked for it
	place       bool          // not if it has become a whole hold, of which another member may have told by now (P1)
	name, owner string        // where entry is nil
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

// removalsAtOnce is how many entries one transaction deletes.
const removalsAtOnce = table.MaxRemovals / 2

func (f *front) removeSome(ctx context.Context, some []removal, done []bool) error {
	for {
		keys, at := f.removals(some)
		if len(keys) == 0 {
			return nil
		}
		f.noteReleased(some, true)
		resp, err := f.put(ctx, table.Remove(keys, 0))
		if err != nil {
			f.noteReleased(some, false)
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

// removals returns the keys that are to go, and for each the entry that it is of; -1 for none.
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
		if left := max(f.minimumLeftLocked(r.entry), r.closed); left > 0 && !r.unused {
			k.Closed = closedText(r.entry, left)
		}
		keys, at = append(keys, k), append(at, i)
	}
	return keys, at
}

func (r *removal) tombstoneLocked() string {
	if r.entry != nil {
		return tombstoneOf(r.entry.at.name, r.entry.Value.Owner)
	}
	return tombstoneOf(r.name, r.owner)
}

// Downgrade makes a shared hold of an exclusive one. The key stays, and so does its place in the order:
// nothing comes between.
func (l locks) Downgrade(ctx context.Context, m *cellv1.DowngradeRequest) (*cellv1.DowngradeResponse, error) {
	e, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if v.Mode == driver.Slot.String() {
			return refuse(cellv1.Reason_REASON_MISMATCH, "%.80q is a semaphore", m.Name)
		}
		v.Mode = driver.Shared.String()
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	return &cellv1.DowngradeResponse{Token: int64(e.tokenOf())}, nil
}

// SetNote changes the note of a hold, and puts the token in use on record.
func (l locks) SetNote(ctx context.Context, m *cellv1.SetNoteRequest) (*cellv1.SetNoteResponse, error) {
	if err := checkNote(m.GetNote()); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	_, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if m.Note != nil {
			v.Note = *m.Note
		}
		if m.Token != 0 {
			v.HandedOver = max(v.HandedOver, int(driver.Token(m.Token)&driver.Token(layout.Block()-1)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &cellv1.SetNoteResponse{}, nil
}

// change edits the value of a hold's key. It is put only if the key is as it was when it was read: a change that is late
// must not undo another one.
func (f *front) change(ctx context.Context, credential, name, request string, edit func(*table.Value) error) (*entry, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	s, err := f.session(ctx, credential)
	if err != nil {
		return nil, err
	}
	for synced := false; ; {
		e, parsed, why := f.holdOf(s, name, request)
		if e == nil {
			if synced {
				return nil, why
			}
			if err := f.sync(ctx); err != nil {
				return nil, err
			}
			synced = true
			continue
		}
		v := parsed.Value
		if err := edit(&v); err != nil {
			return nil, err
		}
		if v == parsed.Value {
			return e, nil
		}
		resp, err := f.txn(ctx, table.Change(parsed.Key, parsed.Mod, layout.Text(v)))
		if err != nil {
			return nil, ofStore(ctx, err)
		}
		if resp.Succeeded {
			return e, nil
		}
	}
}

// holdOf returns a session's hold, or why there is none.
func (f *front) holdOf(s *session, name, request string) (*entry, table.Entry, error) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	owner := ownerOf(s.id, request)
	if e := f.mirror.nameLocked(name).find(owner); e != nil && e.holds {
		return e, e.Entry, nil
	}
	if f.mirror.tombstones[tombstoneOf(name, owner)].broken {
		return nil, table.Entry{}, refuse(cellv1.Reason_REASON_BROKEN, "an operator has ended the hold of %.80q", name)
	}
	return nil, table.Entry{}, refuse(cellv1.Reason_REASON_NOT_HELD, "the session does not hold %.80q", name)
}
