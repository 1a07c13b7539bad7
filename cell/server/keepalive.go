package server

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// KeepAlive keeps a session alive and brings its events.
func (f sessions) KeepAlive(ctx context.Context, r *cellv1.KeepAliveRequest) (*cellv1.KeepAliveResponse, error) {
	arrived := f.clock.Now()
	s, err := f.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	k := &keepAlive{front: f.front, session: s, arrived: arrived, now: r.Now, claims: r.Claims}
	k.resp.Nonce = r.Nonce
	if err := k.run(ctx, r.Cursor); err != nil {
		return nil, err
	}
	return &k.resp, nil
}

// keepAlive is one parked call.
type keepAlive struct {
	*front
	session *session
	arrived driver.Instant
	now     bool // answer at once
	claims  []*cellv1.Claim
	resp    cellv1.KeepAliveResponse
}

// run parks the call until there is something to tell, or it is time for the client's next sign of life.
// One that is to be answered now leaves the call that is parked alone.
func (k *keepAlive) run(ctx context.Context, cursor string) error {
	s, m := k.session, k.mirror
	m.mu.Lock()
	st := s.streamLocked()
	st.acknowledgeLocked(cursor)
	var superseded chan struct{} // nil: it is not parked
	if !k.now {
		if st.call != nil {
			close(st.call) // one that is parked is answered
		}
		superseded = make(chan struct{})
		st.call = superseded
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if st.call == superseded && superseded != nil {
			st.call = nil
		}
	}()
	if err := k.signOfLife(ctx); err != nil {
		return err
	}
	for {
		next, tell, over := k.next()
		switch {
		case over:
			return errSessionOver
		case next <= 0 || tell || k.now:
			return k.answer(ctx, next <= 0 || k.now)
		}
		select {
		case <-time.After(next):
		case <-st.news:
		case <-superseded:
		case <-k.stopping.Done():
			k.resp.MemberStopping = true
			k.now = true
		case <-ctx.Done():
			return ended(ctx)
		}
		select {
		case <-superseded: // a later call tells, also what this one may have been woken for
			k.resp.Places = nil // no loss is told here
			m.mu.Lock()
			defer m.mu.Unlock()
			st.wakeLocked()
			return nil
		default:
		}
	}
}

// longestParked is for how long a call is parked at most. Proxies cut what is silent for a minute.
const longestParked = 45 * time.Second

// signOfLife takes the arrival of the call as a sign of life: the session's places are confirmed, and
// the claims that it names become whole holds.
func (k *keepAlive) signOfLife(ctx context.Context) error {
	s := k.session
	var claims []*entry
	k.mirror.mu.Lock()
	places := s.places
	for _, c := range k.claims {
		if e := k.mirror.nameLocked(c.Name).find(ownerOf(s.id, c.Request)); e != nil && e.holds && e.isPlace() {
			claims = append(claims, e)
		}
	}
	k.mirror.mu.Unlock()
	if places == 0 {
		return nil
	}
	if err := k.own(ctx, claims); err != nil {
		return err
	}
	taken, err := k.confirm(ctx, s, true)
	if err != nil {
		return err
	}
	k.resp.Places = extension(k.placeTTL, taken.Sub(k.arrived))
	return nil
}

// own makes claims whole holds, which last as long as their session. A key that was changed at the same moment is read anew.
func (f *front) own(ctx context.Context, claims []*entry) error {
	for {
		txn := &etcdserverpb.TxnRequest{}
		f.mirror.mu.Lock()
		for _, c := range claims {
			if e := f.mirror.entries[c.Key]; e != nil && e.Created == c.Created && e.isPlace() && len(txn.Success) < removalsAtOnce {
				v := e.Value
				v.Place = false
				txn.Success = append(txn.Success, table.TxnOp(table.Change(e.Key, e.Mod, layout.Text(v))))
			}
		}
		f.mirror.mu.Unlock()
		if len(txn.Success) == 0 {
			return nil
		}
		if _, err := f.txn(ctx, txn); err != nil {
			return ofStore(ctx, err)
		}
	}
}

// next returns when the call is to be answered at the latest, and whether there is something to tell.
func (k *keepAlive) next() (in time.Duration, tell, over bool) {
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	s, st := k.session, k.session.stream
	if s.over || st == nil {
		return 0, false, true
	}
	now := k.clock.Now()
	if st.extended != 0 {
		in = st.extended.Add(s.record.ttl() / 3).Sub(now)
	}
	in = min(in, k.arrived.Add(longestParked).Sub(now))
	if s.places > 0 {
		in = min(in, k.arrived.Add(k.pulse).Sub(now))
	}
	return in, st.restart || len(st.events) > 0, false
}

// answer extends the session if that is wanted or due soon, and fills in what there is to tell. The
// mirror shows all that had happened when the extension was sent: so a client that hears of no loss
// had all its holds then.
func (k *keepAlive) answer(ctx context.Context, extend bool) error {
	s, st, ttl := k.session, k.session.stream, k.session.record.ttl()
	k.mirror.mu.Lock()
	soon := st.extended.Add(ttl / 6)
	k.mirror.mu.Unlock()
	if extend && (k.now || k.clock.Now() >= soon) {
		sent, err := k.extend(ctx)
		if err != nil {
			return err
		}
		k.resp.Session = extension(ttl, sent.Sub(k.arrived))
		k.mirror.mu.Lock()
		st.extended = max(st.extended, sent)
		k.mirror.mu.Unlock()
	}
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	if s.over {
		return errSessionOver
	}
	st.fillLocked(s, k.mirror.rev, &k.resp)
	return nil
}

// extend extends the session, and returns from when on its TTL counts.
func (k *keepAlive) extend(ctx context.Context) (driver.Instant, error) {
	for {
		taken, err := k.confirm(ctx, k.session, false)
		switch {
		case err == nil || errors.Is(err, errSessionOver):
			return taken, err
		case ctx.Err() != nil:
			return 0, ended(ctx)
		case k.clock.Now() >= k.arrived.Add(k.session.record.ttl()/3+2*time.Second), k.life.Err() != nil:
			return 0, err // the client tries another member while its session has a good part of its time left
		}
		// The leader may have just died. The call stays parked until there is another leader, because
		// clients that came back at once would only make the members busy.
		pause.Sleep(ctx, retryEvery)
	}
}

// retryEvery is the time between two attempts to extend a session.
const retryEvery = 100 * time.Millisecond
