package server

import (
	"cmp"
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/types/known/durationpb"

	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Break is an operator's release. If the hold has another token on record than the operator saw,
// nothing is broken (P4).
func (l locks) Break(ctx context.Context, m *cellv1.BreakRequest) (*cellv1.BreakResponse, error) {
	var e table.Entry
	_, err := l.changed(ctx, m.Name, toAdminister, func() (*etcdserverpb.TxnRequest, error) {
		hold := l.mirror.holdLocked(m.Name, func(e *entry) bool { return e.tokenOf() == driver.Token(m.Token) })
		if hold == nil || m.Token <= 0 {
			return nil, refuse(cellv1.Reason_REASON_NOT_HELD, "nobody holds %.80q with this token", m.Name)
		}
		e = hold.Entry
		return table.Break(&e, tombstoneOf(m.Name, e.Value.Owner), brokenText, 0), nil
	})
	if err == nil {
		l.note(ctx, "a hold was broken", "name", m.Name, "token", m.Token, "session", e.Value.Client)
	}
	return &cellv1.BreakResponse{}, err
}

// holdLocked returns the hold of a name that is meant, or nil.
func (m *mirror) holdLocked(name string, is func(*entry) bool) *entry {
	if n := m.nameLocked(name); n != nil {
		for _, e := range n.entries[:n.holders] {
			if !e.Value.Closed && is(e) {
				return e
			}
		}
	}
	return nil
}

// CheckSequencer reports whether a sequencer is of a hold that still stands.
func (l locks) CheckSequencer(ctx context.Context, r *cellv1.CheckSequencerRequest) (*cellv1.CheckSequencerResponse, error) {
	_, err := l.checkSequencer(ctx, r.Sequencer)
	return &cellv1.CheckSequencerResponse{}, err
}

// sequencerKey is where the context of a call has the sequencer that it depends on.
type sequencerKey struct{}

// checkSequencer returns a sequencer, and an error unless the hold stands that it is of.
func (f *front) checkSequencer(ctx context.Context, text string) (s driver.Sequencer, err error) {
	if s, err = driver.ParseSequencer(text); err != nil {
		return s, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	if err := f.syncFor(ctx, s.Name, toRead); err != nil {
		return s, err
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	_, err = f.standsLocked(s)
	return s, err
}

// standsLocked returns what compares that the hold stands that a sequencer is of, if it does as far as the mirror knows. The key
// of a hold may become that of another mode, or close the name after a kill. A hold that was handed over inside its client
// has any of the tokens of its block. No earlier holder of it has a sequencer: a client hands over no hold whose sequencer
// was asked for (P1).
func (f *front) standsLocked(s driver.Sequencer) (*etcdserverpb.Compare, error) {
	e := f.mirror.holdLocked(s.Name, func(e *entry) bool {
		return e.Mode == s.Mode && e.Created == layout.Created(s.Token) && s.Token >= e.tokenOf()
	})
	if e == nil {
		return nil, refuse(cellv1.Reason_REASON_STALE, "the sequencer %.80q is of a hold that has ended", s.String())
	}
	return table.CompareChanged([]byte(e.Key), e.Mod), nil
}

// Inspect shows a name.
func (l locks) Inspect(ctx context.Context, r *cellv1.InspectRequest) (*cellv1.InspectResponse, error) {
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
				Session: e.Value.Client, Request: e.request(), Mode: hfcell.ModeOf(e.Mode), Permits: int32(e.Value.Permits),
				Token: int64(e.tokenOf()), Note: e.Value.Note, Held: durationpb.New(e.Age()),
				Expires: durationpb.New(max(f.leftLocked(e)-e.Delay(), 0)),
			})
		case !e.Value.Closed:
			shown.Waiters = append(shown.Waiters, &cellv1.Waiter{
				Session: e.Value.Client, Request: e.request(), Mode: hfcell.ModeOf(e.Mode), Permits: int32(e.Value.Permits),
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
	lasts := s.record.lasts()
	if e.isPlace() {
		end, lasts = places, f.placeTTL
	}
	return min(max(end.Sub(f.clock.Now()), 0), lasts)
}

// limitOf is how much a call lists that asks for a limit, or for 0.
func limitOf(asked int32) int { return int(cmp.Or(asked, mostListed)) }

// List shows the names in use.
func (l locks) List(ctx context.Context, m *cellv1.LocksListRequest) (*cellv1.LocksListResponse, error) {
	if err := l.sync(ctx); err != nil {
		return nil, err
	}
	var texts []string
	limit := limitOf(m.Limit)
	l.mirror.mu.Lock()
	l.mirror.names.AscendGreaterOrEqual(&name{name: max(m.Prefix, m.After)}, func(n *name) bool {
		is := strings.HasPrefix(n.name, m.Prefix)
		if is && n.name != m.After && l.allowedLocked(ctx, n.name, toRead) == nil {
			texts = append(texts, n.name)
		}
		return is && len(texts) <= limit
	})
	l.mirror.mu.Unlock()
	resp := &cellv1.LocksListResponse{More: len(texts) > limit}
	for _, text := range texts[:min(len(texts), limit)] {
		resp.Locks = append(resp.Locks, l.show(text))
	}
	return resp, nil
}
