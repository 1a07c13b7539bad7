package server

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A hold with a minimum has a second key, its closer: an entry without an owner, right behind the
// hold's own. It is on a lease of its own, which begins with the hold, is never extended, and lasts
// for the minimum. So it closes the name, whatever becomes of the holder and its session (P5). While
// the request waits its closer waits with it, on the lease of places.
//
// However the hold ends, the member that leads then ends the closer at the right moment, if it has seen
// the hold begin. Else the closer ends with its lease, which lasts a little longer.

// closerBit is added to the number of a hold's key, and makes that of its closer.
const closerBit = 1 << 30

// closerSlack is how much longer the lease of a closer lasts than the minimum, because it begins
// before the hold does.
const closerSlack = time.Second

// closerKey returns the key of the closer of a hold's key.
func closerKey(key string) string {
	at := strings.LastIndexByte(key, '.') + 1
	n, _ := strconv.ParseInt(key[at:], 10, 32) // it is a number: see table.ClientOf
	return key[:at] + strconv.FormatInt(n|closerBit, 10)
}

// closerOfLocked returns the closer of a hold, or nil.
func (m *mirror) closerOfLocked(e *entry) *entry {
	if c := m.entries[closerKey(e.Key)]; c != e {
		return c
	}
	return nil // it is one itself
}

// closerOp puts the closer of the request's n-th key.
func (a *acquire) closerOp(n int32, id clientv3.LeaseID) *etcdserverpb.RequestOp {
	v := layout.NewValue(&a.Request, a.session.id, time.Now().UnixMilli())
	v.Owner, v.Note, v.Closed = "", "", true
	v.Until, v.MinHold = time.Now().Add(a.MinHold).UnixMilli(), a.MinHold.Milliseconds()
	v.Principal = a.session.record.Load().Principal
	return table.PutOp([]byte(layout.Key(a.Name, a.session.id, n|closerBit)), v.String(), id)
}

// putClosing puts a hold's key and its closer.
func (a *acquire) putClosing(
	ctx context.Context, n int32, txn *etcdserverpb.TxnRequest,
) (*etcdserverpb.TxnResponse, error) {
	sent := a.clock.Now()
	id, err := a.closerLease(ctx, a.MinHold)
	if err != nil {
		return nil, err
	}
	txn.Success = append(txn.Success, a.closerOp(n, id))
	resp, err := a.txn(ctx, txn)
	switch {
	case err != nil:
		return nil, err
	case !resp.Succeeded:
		a.revoke(id)
		return resp, nil
	}
	key := layout.Key(a.Name, a.session.id, n|closerBit)
	return resp, a.restart(ctx, key, resp.Header.Revision, id, a.MinHold, sent)
}

// restart puts a closer on a new lease, if so much of the time of the one that it is on was over when its hold began
// that it would end too early. Its own is never extended: see expiry.go.
func (f *front) restart(
	ctx context.Context, key string, created int64, id clientv3.LeaseID, minimum time.Duration, granted driver.Instant,
) error {
	if f.clock.Now() < granted.Add(closerSlack) {
		return nil
	}
	longer, err := f.closerLease(ctx, minimum)
	if err != nil {
		return err
	}
	_, err = f.txn(ctx, table.Move(key, created, id, longer))
	return ofStore(ctx, err)
}

func (f *front) closerLease(ctx context.Context, minimum time.Duration) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := f.store.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: wholeSeconds(minimum + closerSlack)})
	if err != nil {
		return 0, ofStore(ctx, err)
	}
	return clientv3.LeaseID(resp.ID), nil
}

// revoke ends a lease that is of no use. If that fails the lease ends by itself.
func (f *front) revoke(id clientv3.LeaseID) {
	f.background.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, within)
		defer cancel()
		if _, err := f.store.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(id)}); err != nil {
			f.log.Debug("a lease was not ended and will end by itself", "error", err)
		}
	})
}

// minimumLeftLocked returns for how much longer a hold's closer is to stay. It is not known of a hold
// that this member has not seen begin.
func (f *front) minimumLeftLocked(hold, closer *entry) (left time.Duration, known bool) {
	if hold.since <= f.mirror.loaded {
		return 0, false
	}
	minimum := time.Duration(closer.Value.MinHold) * time.Millisecond
	return hold.since.Add(minimum).Sub(f.clock.Now()), true
}

// orphaned ends the lease of a closer, and so the closer, when the minimum of its hold is over.
func (f *front) orphaned(hold, closer *entry) {
	left, known := f.minimumLeftLocked(hold, closer)
	if !known || closer.isPlace() || !f.leads() {
		return
	}
	id := clientv3.LeaseID(closer.Lease)
	f.background.Go(func() {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
			f.revoke(id)
		case <-f.life.Done():
		}
	})
}

// ownClosing makes those of a session's claims whole holds that have closers: else these would go
// with the places.
func (f *front) ownClosing(ctx context.Context, s *session, entries []*entry) error {
	var claims []*entry
	f.mirror.mu.Lock()
	for _, e := range entries {
		if e != nil && e.holds && e.isPlace() && f.mirror.closerOfLocked(e) != nil {
			claims = append(claims, e)
		}
	}
	f.mirror.mu.Unlock()
	return f.own(ctx, s, claims)
}

// own makes claims whole holds, which last as long as their session.
func (f *front) own(ctx context.Context, s *session, claims []*entry) error {
	for sent := f.clock.Now(); len(claims) > 0; {
		some := claims[:min(len(claims), 30)]
		claims = claims[len(some):]
		txn := &etcdserverpb.TxnRequest{}
		var closers []func() error
		for _, e := range some {
			f.mirror.mu.Lock()
			move := table.Move(e.Key, e.Created, clientv3.LeaseID(placeLeaseOf(s.id)), clientv3.LeaseID(leaseOf(s.id)))
			var minimum time.Duration
			var key string
			var created int64
			c := f.mirror.closerOfLocked(e)
			if c != nil {
				key, created = c.Key, c.Created
				minimum = time.Duration(c.Value.MinHold) * time.Millisecond
			}
			f.mirror.mu.Unlock()
			if c != nil {
				id, err := f.closerLease(ctx, minimum)
				if err != nil {
					return err
				}
				closers = append(closers, func() error { return f.restart(ctx, key, created, id, minimum, sent) })
				moved := table.Move(key, created, clientv3.LeaseID(placeLeaseOf(s.id)), id)
				move.Success = append(move.Success, moved.Success...)
			}
			txn.Success = append(txn.Success, table.TxnOp(move))
		}
		if _, err := f.txn(ctx, txn); err != nil {
			return ofStore(ctx, err)
		}
		for _, restart := range closers {
			if err := restart(); err != nil {
				return err
			}
		}
	}
	return nil
}

func isLeaseNotFound(err error) bool { return errors.Is(err, lease.ErrLeaseNotFound) }
