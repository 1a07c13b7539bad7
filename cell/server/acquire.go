package server

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// acquire is one call of Acquire.
type acquire struct {
	*front
	driver.Request
	session   *session
	arrived   driver.Instant
	wait      time.Duration  // for how long to be parked at most
	queue     bool           // take a place and answer at once
	confirmed driver.Instant // when the session's places were last confirmed by this call; 0: they were not
}

// Acquire takes a lock, or a place in its queue.
func (l locks) Acquire(ctx context.Context, m *cellv1.AcquireRequest) (_ *cellv1.AcquireResponse, err error) {
	a := &acquire{front: l.front, arrived: l.clock.Now(), wait: m.Wait.AsDuration(), queue: m.Queue}
	switch slots := m.Mode == cellv1.Mode_MODE_SLOT; {
	case slots && (m.Slots < 1 || m.Permits < 0 || m.Permits > m.Slots):
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%d of %d slots: between 1 and all of at least one are right", m.Permits, m.Slots)
	case !slots && (m.Slots != 0 || m.Permits != 0):
		return nil, refuse(cellv1.Reason_REASON_INVALID, "slots and permits are for MODE_SLOT")
	}
	if a.session, err = l.session(ctx, m.Session); err != nil {
		return nil, err
	}
	a.Request = driver.Request{
		Name: m.Name, Owner: ownerOf(a.session.id, m.Request), Mode: hfcell.DriverMode(m.Mode), Note: m.Note,
		MinHold: m.MinHold.AsDuration(), LockDelay: a.session.record.lockDelay(), Tokens: int(m.Tokens),
	}
	if a.Mode == driver.Slot {
		a.Slots, a.Permits = int(m.Slots), max(int(m.Permits), 1)
	}
	return a.run(ctx)
}

// situation is what the mirror says of an acquire.
type situation struct {
	own      *entry
	denied   error // the caller may not lock the name, or not any more
	ended    bool  // the session is over
	over     bool  // the request has a tombstone
	free     bool
	mismatch error
	holder   *cellv1.HeldBy
	newest   int64 // the highest create revision of the name
	newestOf int64 // the same of the session's own keys
	n        int32 // a number for a new key that the session does not use
}

func (a *acquire) look(ctx context.Context) situation {
	m := a.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nameLocked(a.Name)
	own := layout.Dir(a.Name) + a.session.id + "."
	s := situation{own: n.find(a.Owner), ended: a.session.over, newest: n.newest(""), newestOf: n.newest(own)}
	_, s.over = m.tombstones[tombstoneOf(a.Name, a.Owner)]
	s.denied = a.allowedLocked(ctx, a.Name, toWrite)
	if s.own != nil || n == nil {
		s.free = n == nil
		return s
	}
	for m.entries[layout.Key(a.Name, a.session.id, s.n)] != nil {
		s.n++
	}
	s.free = n.admits(table.UseOf(&a.Request))
	s.holder = n.heldByLocked()
	for _, e := range n.entries {
		if err := layout.Mismatch(&a.Request, []table.Entry{e.Entry}); err != nil {
			s.mismatch = refuse(cellv1.Reason_REASON_MISMATCH, "%.80q: %w", a.Name, err)
		}
	}
	return s
}

// heldByLocked says who is in the way.
func (n *name) heldByLocked() *cellv1.HeldBy {
	first := n.entries[0]
	by := &cellv1.HeldBy{Note: first.Value.Note, Queued: int32(n.waiters())}
	if !first.Value.Closed {
		by.Session, by.Token = first.Value.Client, int64(first.tokenOf())
	}
	return by
}

// errOver is the answer to a request that was released or withdrawn.
var errOver = refuse(cellv1.Reason_REASON_NOT_HELD, "this request is over: it was released or withdrawn")

// run goes on until the request has its hold, or its place, or is refused. The mirror may be old: another member may
// have released the name just now, and the request may have had the name before. So run refuses nobody, and tells
// nobody that it has the name already, before the mirror has caught up.
func (a *acquire) run(ctx context.Context) (*cellv1.AcquireResponse, error) {
	for synced := false; ; {
		var err error
		s := a.look(ctx)
		switch {
		case s.ended:
			return nil, errSessionOver
		case !synced && (s.denied != nil || s.own != nil || s.over || !s.free && (s.mismatch != nil || !a.waits())):
			synced, err = true, a.sync(ctx)
		case s.denied != nil:
			return nil, s.denied
		case s.own != nil:
			resp, err := a.has(ctx, s.own)
			if resp != nil || err != nil {
				return resp, err
			}
		case s.over:
			return nil, errOver
		case !s.free && s.mismatch != nil:
			return nil, s.mismatch
		case !s.free && !a.waits():
			return nil, held(a.Name, s.holder)
		default:
			resp, err := a.put(ctx, &s)
			if resp != nil || err != nil {
				return resp, err
			}
			synced = synced || !s.free
		}
		if err != nil {
			return nil, err
		}
	}
}

func (a *acquire) waits() bool { return a.queue || a.wait > 0 }

// put puts the request's key: that of a hold, if the name is still as the mirror shows it, or that of a place. It answers
// for a hold at once, before the mirror shows it: else the answer would come later by the way of an event through etcd.
//
// A place is at the end of the queue wherever other keys come, so only the session's own keys must be as the mirror shows
// them: the same request may be made at two members. A place behind one of another kind, which came at the same moment,
// waits like any other.
func (a *acquire) put(ctx context.Context, s *situation) (*cellv1.AcquireResponse, error) {
	if err := a.mayHave(ctx, callerOf(ctx), "locks", 1); err != nil {
		return nil, err
	}
	key := layout.Key(a.Name, a.session.id, s.n)
	txn := layout.Take(a.Name, requestFor(a.Name, a.Owner), key, a.text(false), 0, s.newest, 1)
	if !s.free {
		if n := s.holder.Queued; n >= maxWaiters {
			return nil, refuse(cellv1.Reason_REASON_QUOTA, "%d wait for %.80q: more are not right", n, a.Name)
		}
		if err := a.signOfLife(ctx); err != nil {
			return nil, err
		}
		own := layout.Dir(a.Name) + a.session.id + "."
		txn = when(compares{
			table.CompareCreated([]byte(tombstoneOf(a.Name, a.Owner)), nil, etcdserverpb.Compare_EQUAL, 0),
			table.CompareCreated([]byte(own), []byte(clientv3.GetPrefixRangeEnd(own)), etcdserverpb.Compare_LESS, s.newestOf+1),
		}, table.PutOp([]byte(key), a.text(true), 0))
	}
	txn.Compare = append(txn.Compare, exists(a.session.id))
	resp, err := a.front.put(ctx, txn)
	if err != nil {
		return nil, ofStore(ctx, err)
	}
	rev := resp.Header.Revision
	if !s.free || !resp.Succeeded {
		return nil, ofStore(ctx, a.mirror.reach(ctx, rev))
	}
	r := &cellv1.AcquireResponse{Revision: rev}
	a.granted(r, a.Mode, layout.Token(rev))
	return r, nil
}

// signOfLife gives that of the session's places, once in a while. The mirror shows what had become of the places before: a
// client whose places had ended, and its claims with them, hears of the loss before it hears that places last.
func (a *acquire) signOfLife(ctx context.Context) error {
	if a.confirmed != 0 && a.clock.Now() < a.confirmed.Add(a.pulse/2) {
		return nil
	}
	taken, err := a.confirm(ctx, a.session, true)
	if err == nil {
		a.confirmed = taken
	}
	return err
}

// text is the value of the request's key.
func (a *acquire) text(place bool) string {
	v := layout.NewValue(&a.Request, a.session.id, time.Now().UnixMilli())
	v.MinHold, v.Place = int64((a.MinHold+time.Millisecond-1)/time.Millisecond), place
	return layout.Text(v)
}

// has answers for an entry of the request, or waits for what becomes of it. It answers nothing if the
// entry is gone: the request looks again then.
func (a *acquire) has(ctx context.Context, e *entry) (*cellv1.AcquireResponse, error) {
	a.mirror.mu.Lock()
	place := e.isPlace()
	a.mirror.mu.Unlock()
	if place {
		if err := a.signOfLife(ctx); err != nil {
			return nil, err
		}
		if !a.queue {
			if err := a.await(ctx, e); err != nil {
				return nil, err
			}
			if err := a.own(ctx, []*entry{e}); err != nil {
				return nil, err
			}
		}
	}
	a.mirror.mu.Lock()
	defer a.mirror.mu.Unlock()
	if e.gone {
		return nil, nil
	}
	return a.answerLocked(e), nil
}

// await parks the call until its place has become a hold, or its time is over. If the client goes
// away meanwhile, the place stays for as long as places do: the client may ask again elsewhere.
func (a *acquire) await(ctx context.Context, e *entry) error {
	end, sign := time.After(a.wait), time.Tick(a.pulse)
	for {
		a.mirror.mu.Lock()
		if e.gone || e.holds {
			a.mirror.mu.Unlock()
			return nil
		}
		answered, holder, mod := e.answerChanLocked(), e.at.heldByLocked(), e.Mod
		a.mirror.mu.Unlock()
		select {
		case <-answered:
		case <-sign:
			if err := a.signOfLife(ctx); err != nil {
				return err
			}
		case <-a.stopping.Done():
			return refuse(cellv1.Reason_REASON_UNCERTAIN, "this member is about to stop: make the same call at another")
		case <-end:
			// A place that has become a hold stays: the same call at another member may have told of the hold (P1).
			done, err := a.remove(ctx, []removal{{entry: e, unused: true, place: mod}})
			if err != nil {
				return err
			}
			if done[0] {
				return held(a.Name, holder)
			}
			return ofStore(ctx, a.mirror.reach(ctx, a.written.Load()))
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// answerLocked describes what the request has.
func (a *acquire) answerLocked(e *entry) *cellv1.AcquireResponse {
	r := &cellv1.AcquireResponse{Revision: e.Created}
	if e.isPlace() && a.confirmed != 0 {
		r.Places = extension(a.placeTTL, a.confirmed.Sub(a.arrived))
	}
	if !e.holds {
		r.Ahead, r.Held = int32(e.aheadLocked()), e.at.heldByLocked()
		return r
	}
	r.Claim, r.Contended = e.isPlace(), e.at.waiters() > 0
	a.granted(r, e.Mode, e.tokenOf())
	return r
}

// granted says which tokens a hold has.
func (a *acquire) granted(r *cellv1.AcquireResponse, mode driver.Mode, token driver.Token) {
	r.Token, r.Block = int64(token), int32(min(max(a.Tokens, 1), layout.Block()))
	r.Sequencer = driver.Sequencer{Name: a.Name, Mode: mode, Token: token}.String()
}

func extension(ttl, after time.Duration) *cellv1.Extension {
	return &cellv1.Extension{Ttl: durationpb.New(ttl), After: durationpb.New(max(after, 0))}
}
