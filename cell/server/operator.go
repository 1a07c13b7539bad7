package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Break is an operator's release. If the hold has another token on record than the operator saw,
// nothing is broken (P4).
func (l locks) Break(ctx context.Context, m *cellv1.BreakRequest) (*cellv1.BreakResponse, error) {
	if err := driver.CheckName(m.Name); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := l.mayUse(ctx, m.Name, toBreak); err != nil {
		return nil, err
	}
	tombstones, err := l.tombstones.lease(ctx, l.front)
	if err != nil {
		return nil, ofStore(ctx, err)
	}
	for {
		if err := l.syncFor(ctx, m.Name, toBreak); err != nil {
			return nil, err
		}
		e, closer, found := l.holder(m.Name, driver.Token(m.Token))
		if !found {
			return nil, refuse(cellv1.Reason_REASON_NOT_HELD, "nobody holds %.80q with this token", m.Name)
		}
		marker := ""
		if e.Value.Owner != "" {
			marker = tombstoneOf(m.Name, e.Value.Owner)
		}
		txn := table.Break(&e, marker, brokenText, tombstones)
		if closer != "" {
			txn.Success = append(txn.Success, table.DeleteOp([]byte(closer)))
		}
		resp, err := l.txn(ctx, txn)
		if isLeaseNotFound(err) {
			l.tombstones.forget(tombstones)
			if tombstones, err = l.tombstones.lease(ctx, l.front); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, ofStore(ctx, err)
		}
		if resp.Succeeded {
			l.note(ctx, "a hold was broken", "name", m.Name, "token", m.Token, "session", e.Value.Client)
			return &cellv1.BreakResponse{}, nil
		}
	}
}

// holder returns the hold that has a token, and the key of its closer, if it has one.
func (f *front) holder(name string, token driver.Token) (hold table.Entry, closer string, found bool) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	n := f.mirror.nameLocked(name)
	if n == nil || token <= 0 {
		return table.Entry{}, "", false
	}
	for _, e := range n.entries[:n.holders] {
		if !e.Value.Closed && e.tokenOf() == token {
			if c := f.mirror.closerOfLocked(e); c != nil {
				closer = c.Key
			}
			return e.Entry, closer, true
		}
	}
	return table.Entry{}, "", false
}

// CheckSequencer reports whether a sequencer is of a hold that still stands.
func (l locks) CheckSequencer(ctx context.Context, r *cellv1.CheckSequencerRequest) (*cellv1.CheckSequencerResponse, error) {
	if _, err := l.checkSequencer(ctx, r.Sequencer); err != nil {
		return nil, err
	}
	return &cellv1.CheckSequencerResponse{}, nil
}

// checkSequencer returns the hold that a sequencer is of, and an error unless that stands.
func (f *front) checkSequencer(ctx context.Context, text string) (fence, error) {
	s, err := driver.ParseSequencer(text)
	if err == nil {
		err = driver.CheckName(s.Name)
	}
	if err != nil {
		return fence{}, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := f.syncFor(ctx, s.Name, toRead); err != nil {
		return fence{}, err
	}
	return f.mirror.fence(s)
}

// Inspect shows a name.
func (l locks) Inspect(ctx context.Context, r *cellv1.InspectRequest) (*cellv1.InspectResponse, error) {
	if err := driver.CheckName(r.Name); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := l.syncFor(ctx, r.Name, toRead); err != nil {
		return nil, err
	}
	return &cellv1.InspectResponse{Lock: l.show(r.Name)}, nil
}

// show describes a name.
func (f *front) show(text string) *cellv1.Lock {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	shown := &cellv1.Lock{Name: text}
	n := f.mirror.nameLocked(text)
	if n == nil {
		return shown
	}
	for _, e := range n.entries {
		shown.Slots = max(shown.Slots, int32(e.Value.Slots))
		switch {
		case e.holds && e.Value.Closed:
			shown.ClosedFor = durationpb.New(max(shown.ClosedFor.AsDuration(), e.ClosesIn()))
		case e.holds:
			shown.Holders = append(shown.Holders, &cellv1.Holder{
				Session: e.Value.Client, Request: e.request(), Mode: modes[e.Mode], Permits: int32(e.Value.Permits),
				Token: int64(e.tokenOf()), Note: e.Value.Note, Held: durationpb.New(e.Age()),
				Expires: durationpb.New(max(f.leftLocked(e)-e.Delay(), 0)),
			})
		case !e.Value.Closed:
			shown.Waiters = append(shown.Waiters, &cellv1.Waiter{
				Session: e.Value.Client, Request: e.request(), Mode: modes[e.Mode], Permits: int32(e.Value.Permits),
				Note: e.Value.Note, Waiting: durationpb.New(e.Age()),
			})
		}
	}
	return shown
}

// leftLocked returns in how long an entry ends, unless its client gives a sign of life; 0 if its session is over. It is exact
// if this process is the session's home. Else it is at most: what the home has heard last only the home knows.
func (f *front) leftLocked(e *entry) time.Duration {
	s := e.session
	if s == nil || s.over {
		return 0
	}
	end, places := f.endsLocked(s)
	lasts := s.record.Load().lasts()
	if e.isPlace() {
		end, lasts = places, f.placeTTL
	}
	return min(max(end.Sub(f.clock.Now()), 0), lasts)
}

// mostListed is how much one call of List shows.
const mostListed = 1000

// List shows the names in use.
func (l locks) List(ctx context.Context, m *cellv1.LocksListRequest) (*cellv1.LocksListResponse, error) {
	if m.Limit < 0 || m.Limit > mostListed {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "limit: %d: between 0 and %d are right", m.Limit, mostListed)
	}
	limit := int(cmp.Or(m.Limit, mostListed))
	if err := l.sync(ctx); err != nil {
		return nil, err
	}
	var texts []string
	more := false
	l.mirror.mu.Lock()
	l.mirror.names.AscendGreaterOrEqual(&name{name: max(m.Prefix, m.After)}, func(n *name) bool {
		switch {
		case n.name == m.After && m.After != "", l.allowedLocked(ctx, n.name, toRead) != nil:
			return true
		case !strings.HasPrefix(n.name, m.Prefix):
			return false
		case len(texts) == limit:
			more = true
			return false
		}
		texts = append(texts, n.name)
		return true
	})
	l.mirror.mu.Unlock()
	resp := &cellv1.LocksListResponse{More: more}
	for _, text := range texts {
		resp.Locks = append(resp.Locks, l.show(text))
	}
	return resp, nil
}

// Watch waits until a name has changed since a revision.
func (l locks) Watch(ctx context.Context, m *cellv1.WatchRequest) (*cellv1.WatchResponse, error) {
	err := driver.CheckName(m.Name)
	if err == nil {
		err = checkDuration("wait", m.Wait, maxWait)
	}
	if err == nil && m.Revision < 0 {
		err = fmt.Errorf("revision: %d is none", m.Revision)
	}
	if err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := l.mayUse(ctx, m.Name, toRead); err != nil {
		return nil, err
	}
	if m.Revision == 0 {
		if err := l.sync(ctx); err != nil {
			return nil, err
		}
	}
	rev, changed := l.changedSince(ctx, m.Name, m.Revision, m.Wait.AsDuration())
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	resp := &cellv1.WatchResponse{Revision: rev}
	if changed {
		if err := l.allowed(ctx, m.Name, toRead); err != nil { // it may have been taken away meanwhile
			return nil, err
		}
		resp.Lock = l.show(m.Name)
	}
	return resp, nil
}

// changedSince waits until a name has changed since a revision, and returns at which revision it is
// known now.
func (f *front) changedSince(ctx context.Context, text string, since int64, wait time.Duration) (rev int64, changed bool) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		next, rev, changed := f.mirror.changed(text, since)
		if changed {
			return rev, true
		}
		select {
		case <-next.happened:
			continue
		case <-end.C:
		case <-f.stopping:
		case <-ctx.Done():
		}
		f.mirror.leave(text, next)
		return rev, false
	}
}
