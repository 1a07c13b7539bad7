package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// sessions serves the API of sessions, and locks that of locks.
type (
	sessions struct{ *front }
	locks    struct{ *front }
)

// defaultTTL is that of sessions which ask for none.
const defaultTTL = 30 * time.Second

// Open opens a session.
func (f sessions) Open(ctx context.Context, m *cellv1.OpenRequest) (*cellv1.OpenResponse, error) {
	arrived := f.clock.Now()
	rec := record{
		Principal: principalOf(ctx), Note: m.Note,
		TTL: cmp.Or(m.Ttl.AsDuration(), defaultTTL).Milliseconds(), LockDelay: m.LockDelay.AsDuration().Milliseconds(),
		Opened: time.Now().UnixMilli(),
	}
	if rec.ttl() < f.minTTL {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "ttl: %v is too short: this cell's shortest is %v", rec.ttl(), f.minTTL)
	}
	if err := f.mayHave(ctx, callerOf(ctx), "sessions", 1); err != nil {
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
	if _, err := f.txn(ctx, when(nil,
		table.PutOp([]byte(sessionsAt+id), string(text), 0), table.PutOp([]byte(homesAt+id), f.aliveness.process, 0),
	)); err != nil {
		return nil, ofStore(ctx, err)
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

// Close ends a session and all that it has.
func (f sessions) Close(ctx context.Context, r *cellv1.CloseRequest) (*cellv1.CloseResponse, error) {
	s, err := f.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	if err := f.end(ctx, s, nil, false); err != nil {
		return nil, err
	}
	return &cellv1.CloseResponse{}, nil
}

// end ends a session if some comparisons succeed, and all that it has. First no member serves it any more.
func (f *front) end(ctx context.Context, s *session, same compares, killed bool) error {
	resp, err := f.txn(ctx, when(same, table.DeleteOp([]byte(sessionsAt+s.id)), table.DeleteOp([]byte(homesAt+s.id))))
	if err != nil || !resp.Succeeded {
		return ofStore(ctx, err)
	}
	if err := f.clear(ctx, s, killed); err != nil {
		return err
	}
	return f.sync(ctx)
}

// clear removes what a session has left that is over: it gets no more, because whatever is put for a session is put only
// while it exists. The names of its holds stay closed for their minimum, and for their lock-delay if it was killed: a
// session that expires lasts for its lock-delay as well.
func (f *front) clear(ctx context.Context, s *session, killed bool) error {
	ctx = context.WithValue(ctx, fenceKey{}, nil) // the hold of the call's sequencer may be among them
	var entries []removal
	var keys []*etcdserverpb.RequestOp
	f.mirror.mu.Lock()
	for e := range s.entries {
		r := removal{entry: e, unused: e.isPlace()} // nobody has begun to use a claim
		if killed && e.holds {
			r.unused, r.closed = false, e.Delay()
		}
		entries = append(entries, r)
	}
	for path, instance := range s.nodes {
		key := []byte(nodesAt + path)
		same := compares{table.CompareCreated(key, nil, etcdserverpb.Compare_EQUAL, instance)}
		keys = append(keys, table.TxnOp(when(same, table.DeleteOp(key), table.DeleteOp([]byte(contentsAt+path)))))
	}
	for path := range s.watches {
		keys = append(keys, table.DeleteOp([]byte(watchesAt+s.id+"/"+path)))
	}
	f.mirror.mu.Unlock()
	_, err := f.remove(ctx, entries)
	for some := range slices.Chunk(keys, removalsAtOnce/2) {
		if err == nil {
			_, err = f.put(ctx, when(nil, some...))
		}
	}
	return ofStore(ctx, err)
}

// List lists the sessions.
func (f sessions) List(ctx context.Context, m *cellv1.SessionsListRequest) (*cellv1.SessionsListResponse, error) {
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(f.mirror.sessions)), func(id string) bool { return id <= m.After })
	limit := limitOf(m.Limit)
	resp := &cellv1.SessionsListResponse{More: len(ids) > limit}
	for _, id := range ids[:min(len(ids), limit)] {
		resp.Sessions = append(resp.Sessions, f.mirror.sessions[id].infoLocked())
	}
	return resp, nil
}

func (s *session) infoLocked() *cellv1.SessionInfo {
	waiting, rec := 0, s.record
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

// Kill ends a session for an operator. The names of its holds stay closed for its lock-delay.
func (f sessions) Kill(ctx context.Context, r *cellv1.KillRequest) (*cellv1.KillResponse, error) {
	id := r.Id
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	s := f.mirror.sessions[id]
	f.mirror.mu.Unlock()
	if s == nil {
		return nil, errSessionOver
	}
	if err := f.end(ctx, s, nil, true); err != nil {
		return nil, err
	}
	f.note(ctx, "a session was killed", "session", id, "of", s.record.Principal)
	return &cellv1.KillResponse{}, nil
}
