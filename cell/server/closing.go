package server

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A hold that ends before its minimum is over, or whose session is killed with a lock-delay, leaves its key behind: an
// entry without an owner and without a lease, which closes the name. Each member knows since when it is closed, and the
// leader deletes the key when the time is over. So no clock that was set, and no leader that stood still, opens a name
// too early (P5). After a fail-over a name may stay closed for longer: a member that has just read everything counts
// from then on.

// minimumLeftLocked returns for how much longer the name of a hold is to stay closed if the hold ends now.
func (f *front) minimumLeftLocked(e *entry) time.Duration {
	if !e.holds || e.Value.Closed {
		return 0
	}
	return max(e.opens().Sub(f.clock.Now()), 0)
}

// opens returns when the minimum of a hold is over, or the time of what closes a name.
func (e *entry) opens() driver.Instant {
	return e.since.Add(time.Duration(e.Value.MinHold) * time.Millisecond)
}

// closedText is the value of a hold's key that closes the name for a while.
func closedText(e *entry, lasts time.Duration) string {
	v := e.Value
	v.Owner, v.Note, v.Closed, v.MinHold = "", "", true, lasts.Milliseconds()+1
	v.Until = time.Now().Add(lasts).UnixMilli()
	if e.session != nil {
		v.Principal = e.session.record.Principal
	}
	return v.String()
}

// closeNames makes those of a session's holds close their names that have a minimum, or a lock-delay if the session was
// killed: one that expires lasts for its lock-delay as well. The session is over, so it gets no more.
func (f *front) closeNames(ctx context.Context, s *session, killed bool) error {
	var closing []removal
	f.mirror.mu.Lock()
	for e := range s.entries {
		left := time.Duration(0)
		if !e.isPlace() { // nobody has begun to use a claim
			left = f.minimumLeftLocked(e)
		}
		if killed && e.holds {
			left = max(left, e.Delay())
		}
		if left > 0 {
			closing = append(closing, removal{entry: e, closed: left})
		}
	}
	f.mirror.mu.Unlock()
	_, err := f.remove(ctx, closing)
	return err
}

// openNames deletes what has closed names for long enough.
func (f *front) openNames(ctx context.Context) error {
	var over []removal
	f.mirror.mu.Lock()
	for e := range f.mirror.closed {
		if f.clock.Now() >= e.opens() {
			over = append(over, removal{entry: e, unused: true})
		}
	}
	f.mirror.mu.Unlock()
	_, err := f.remove(ctx, over)
	return err
}

// tombstone says that a request is over, or that an operator has broken its hold.
type tombstone struct {
	sighting
	broken bool
}

// tombstonesLast is how long the cell remembers at least that a request is over (P6).
const tombstonesLast = 2 * time.Minute

// forgetOld deletes tombstones that are old enough, and the keys of processes that have been silent for long and are
// nobody's home: mostly these have ended. One that lives tells so before it becomes a home.
func (f *front) forgetOld(ctx context.Context) error {
	homes := map[string]bool{}
	var old []*etcdserverpb.RequestOp
	forget := func(key string, last sighting, after time.Duration) {
		if last.rev != 0 && f.clock.Now() >= max(last.seen, f.mirror.loaded).Add(after) {
			old = append(old, table.TxnOp(&etcdserverpb.TxnRequest{
				Compare: []*etcdserverpb.Compare{compareChanged([]byte(key), last.rev)},
				Success: []*etcdserverpb.RequestOp{table.DeleteOp([]byte(key))},
			}))
		}
	}
	f.mirror.mu.Lock()
	for key, t := range f.mirror.tombstones {
		forget(key, t.sighting, tombstonesLast)
	}
	for _, s := range f.mirror.sessions {
		homes[s.home.process] = true
	}
	for process, last := range f.mirror.alive {
		if !homes[process] {
			forget(aliveAt+process, last, silentFor)
		}
	}
	f.mirror.mu.Unlock()
	for some := range slices.Chunk(old, removalsAtOnce) {
		if _, err := f.store.Txn(ctx, &etcdserverpb.TxnRequest{Success: some}); err != nil {
			return err
		}
	}
	return nil
}

// silentFor is after how long a silent process is forgotten.
const silentFor = 10 * time.Minute
