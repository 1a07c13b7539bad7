package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// sessions serves the API of sessions, and locks that of locks.
type (
	sessions struct{ *front }
	locks    struct{ *front }
)

// Bounds of sessions.
const (
	defaultTTL   = 30 * time.Second
	maxTTL       = 24 * time.Hour
	maxLockDelay = 10 * time.Minute
)

// Open opens a session.
func (f sessions) Open(ctx context.Context, m *cellv1.OpenRequest) (*cellv1.OpenResponse, error) {
	arrived := f.clock.Now()
	rec := record{
		Principal: principalOf(ctx), Note: m.Note,
		TTL: cmp.Or(m.Ttl.AsDuration(), defaultTTL).Milliseconds(), LockDelay: m.LockDelay.AsDuration().Milliseconds(),
		Opened: time.Now().UnixMilli(),
	}
	if err := f.checkOpen(m, &rec); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := f.hasSpace(); err != nil {
		return nil, err
	}
	if err := f.mayOpen(ctx); err != nil {
		return nil, err
	}
	id, secret := newSessionID(), newSecret()
	rec.Secret = hashed(secret)
	text, err := json.Marshal(&rec)
	if err != nil {
		return nil, err
	}
	sent, err := f.alive(ctx)
	if err != nil {
		return nil, err
	}
	// If what follows fails the session ends by itself: nobody knows of it.
	if _, err := f.txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		table.PutOp([]byte(sessionsAt+id), string(text), 0), table.PutOp([]byte(homesAt+id), f.aliveness.process, 0),
	}}); err != nil {
		return nil, ofStore(ctx, err)
	}
	if err := f.grantLease(ctx, leaseOf(id)); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	s := f.mirror.sessions[id]
	if s == nil || s.over || s.home.ending {
		f.mirror.mu.Unlock()
		return nil, errSessionOver // this took longer than its TTL
	}
	st := s.streamLocked()
	st.extended, st.restart = sent, false // it has nothing, and the client knows that
	cursor := st.cursorLocked()
	f.mirror.mu.Unlock()
	return &cellv1.OpenResponse{
		Session: id + "." + secret, Id: id, Ttl: durationpb.New(rec.ttl()), LockDelay: durationpb.New(rec.lockDelay()),
		ExtendedAfter: durationpb.New(sent.Sub(arrived)), Cursor: cursor,
	}, nil
}

func (f *front) checkOpen(m *cellv1.OpenRequest, r *record) error {
	if err := checkDuration("ttl", m.Ttl, maxTTL); err != nil {
		return err
	}
	if err := checkDuration("lock_delay", m.LockDelay, maxLockDelay); err != nil {
		return err
	}
	switch {
	case r.ttl() < f.minTTL:
		return fmt.Errorf("ttl: %v is too short: this cell's shortest is %v", r.ttl(), f.minTTL)
	case len(m.Note) > maxNote:
		return fmt.Errorf("note: %d bytes are too many: at most %d", len(m.Note), maxNote)
	}
	return nil
}

// Close ends a session and all that it has.
func (f sessions) Close(ctx context.Context, r *cellv1.CloseRequest) (*cellv1.CloseResponse, error) {
	s, err := f.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	if err := f.end(ctx, s); err != nil {
		return nil, err
	}
	return &cellv1.CloseResponse{}, nil
}

// end ends a session, and all that it has.
func (f *front) end(ctx context.Context, s *session) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := f.store.Txn(bounded, &etcdserverpb.TxnRequest{Success: forget(s.id)})
	if err != nil {
		return ofStore(ctx, err)
	}
	if err := f.endLeases(bounded, s, resp.Header.Revision); err != nil {
		return err
	}
	return f.sync(ctx)
}

// List lists the sessions.
func (f sessions) List(ctx context.Context, m *cellv1.SessionsListRequest) (*cellv1.SessionsListResponse, error) {
	if m.Limit < 0 || m.Limit > mostListed {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "limit: %d: between 0 and %d are right", m.Limit, mostListed)
	}
	if err := f.mayAdminister(ctx); err != nil {
		return nil, err
	}
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	limit := int(cmp.Or(m.Limit, mostListed))
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	var ids []string
	for id := range f.mirror.sessions {
		if id > m.After {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	resp := &cellv1.SessionsListResponse{More: len(ids) > limit}
	for _, id := range ids[:min(len(ids), limit)] {
		resp.Sessions = append(resp.Sessions, f.mirror.sessions[id].infoLocked())
	}
	return resp, nil
}

func (s *session) infoLocked() *cellv1.SessionInfo {
	waiting, rec := 0, s.record.Load()
	for e := range s.entries {
		if !e.holds {
			waiting++
		}
	}
	return &cellv1.SessionInfo{
		Id: s.id, Principal: rec.Principal, Note: rec.Note,
		Ttl: durationpb.New(rec.ttl()), LockDelay: durationpb.New(rec.lockDelay()),
		Open:  durationpb.New(max(time.Since(time.UnixMilli(rec.Opened)), 0)),
		Holds: int32(len(s.entries) - waiting), Places: int32(waiting),
	}
}

// Kill ends a session for an operator. First it is marked, so that no member serves it any more; then
// what it holds becomes what closes the names for its lock-delay; then it ends.
func (f sessions) Kill(ctx context.Context, r *cellv1.KillRequest) (*cellv1.KillResponse, error) {
	id := r.Id
	if leaseOf(id) == 0 {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "id: %.80q is no session's: see the list of sessions", id)
	}
	if err := f.mayAdminister(ctx); err != nil {
		return nil, err
	}
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	s := f.mirror.sessions[id]
	if s == nil {
		f.mirror.mu.Unlock()
		return nil, errSessionOver
	}
	rec := *s.record.Load()
	f.mirror.mu.Unlock()
	if err := f.mark(ctx, id, rec); err != nil {
		return nil, err
	}
	if rec.LockDelay > 0 {
		if err := f.closeNames(ctx, s, &rec); err != nil {
			return nil, err
		}
	}
	if err := f.end(ctx, s); err != nil {
		return nil, err
	}
	f.note(ctx, "a session was killed", "session", id, "of", rec.Principal)
	return &cellv1.KillResponse{}, nil
}

// mark notes that a session is killed.
func (f *front) mark(ctx context.Context, id string, rec record) error {
	rec.Killed = true
	text, err := json.Marshal(&rec)
	if err != nil {
		return err
	}
	_, err = f.txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{
			table.CompareCreated([]byte(sessionsAt+id), nil, etcdserverpb.Compare_GREATER, 0),
		},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: []byte(sessionsAt + id), Value: text, IgnoreLease: true},
		}}},
	})
	return ofStore(ctx, err)
}

// closeNames makes a session's holds what closes their names, on a lease for the lock-delay.
func (f *front) closeNames(ctx context.Context, s *session, rec *record) error {
	var holds []table.Entry
	f.mirror.mu.Lock()
	for e := range s.entries {
		if e.holds {
			holds = append(holds, e.Entry)
		}
	}
	f.mirror.mu.Unlock()
	if len(holds) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	lease, err := f.store.LeaseGrant(bounded, &etcdserverpb.LeaseGrantRequest{TTL: wholeSeconds(rec.lockDelay())})
	if err != nil {
		return ofStore(ctx, err)
	}
	until := time.Now().Add(rec.lockDelay()).UnixMilli()
	for len(holds) > 0 {
		some := holds[:min(len(holds), 60)]
		holds = holds[len(some):]
		txn := &etcdserverpb.TxnRequest{}
		for i := range some {
			v := some[i].Value
			v.Owner, v.Closed, v.Until = "", true, until
			txn.Success = append(txn.Success, table.TxnOp(&etcdserverpb.TxnRequest{
				Compare: []*etcdserverpb.Compare{
					table.CompareCreated([]byte(some[i].Key), nil, etcdserverpb.Compare_EQUAL, some[i].Created),
				},
				Success: []*etcdserverpb.RequestOp{table.PutOp([]byte(some[i].Key), v.String(), clientv3.LeaseID(lease.ID))},
			}))
		}
		if _, err := f.txn(ctx, txn); err != nil {
			return ofStore(ctx, err)
		}
	}
	return nil
}
