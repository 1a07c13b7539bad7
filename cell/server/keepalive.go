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

// KeepAlive keeps a session alive and brings its events. A later call that is to be parked is parked instead of this one,
// which then tells nothing; one that is to be answered now leaves this one alone.
func (f sessions) KeepAlive(ctx context.Context, r *cellv1.KeepAliveRequest) (*cellv1.KeepAliveResponse, error) {
	arrived := f.clock.Now()
	s, err := f.session(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	k := &keepAlive{front: f.front, session: s, arrived: arrived, now: r.Now, cursor: r.Cursor}
	k.resp.Nonce = r.Nonce
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f.mirror.mu.Lock()
	k.stream = s.streamLocked()
	if !r.Now {
		if k.stream.end != nil {
			k.stream.end(errSuperseded)
		}
		k.stream.end = end
	}
	f.mirror.mu.Unlock()
	if err = k.signOfLife(ctx, r.Claims); err == nil {
		err = k.park(ctx)
	}
	if errors.Is(context.Cause(ctx), errSuperseded) {
		f.mirror.mu.Lock()
		defer f.mirror.mu.Unlock()
		k.stream.wakeLocked() // this call may have been woken for what the later one tells
		return &cellv1.KeepAliveResponse{Nonce: r.Nonce}, nil
	}
	return &k.resp, err
}

var errSuperseded = errors.New("a later call is parked")

// keepAlive is one call.
type keepAlive struct {
	*front
	session *session
	stream  *stream
	arrived driver.Instant
	now     bool   // answer at once
	cursor  string // says what the client knows
	resp    cellv1.KeepAliveResponse
}

// longestParked is for how long a call is parked at most. Proxies cut what is silent for a minute.
const longestParked = 45 * time.Second

// parked is for how long after an extension the next one is made: somewhat more than the third of the TTL after which
// clients renew, so that a renewal that is late itself finds the parked call, and needs none of its own.
func (r *record) parked() time.Duration { return r.ttl()/3 + min(r.ttl()/16, 2*time.Second) }

// park parks the call until there is something to tell, or it is time for the client's next sign of life.
func (k *keepAlive) park(ctx context.Context) error {
	for {
		in, tell := k.next()
		if in <= 0 || tell || k.now {
			return k.answer(ctx, in <= 0 || k.now)
		}
		select {
		case <-time.After(in):
		case <-k.stream.news:
		case <-k.stopping.Done():
			k.resp.MemberStopping, k.now = true, true
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// next returns when the call is to be answered at the latest, and whether there is something to tell.
func (k *keepAlive) next() (in time.Duration, tell bool) {
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	s, st := k.session, k.stream
	at := min(k.arrived.Add(longestParked), st.extended.Add(s.record.parked()))
	if s.places > 0 {
		at = min(at, k.arrived.Add(k.pulse))
	}
	events, all := st.afterLocked(k.cursor)
	return at.Sub(k.clock.Now()), s.over || all || len(events) > 0
}

// signOfLife takes the arrival of the call as a sign of life: the session's places are confirmed, and
// the claims that it names become whole holds.
func (k *keepAlive) signOfLife(ctx context.Context, named []*cellv1.Claim) error {
	s := k.session
	var claims []*entry
	k.mirror.mu.Lock()
	places := s.places
	for _, c := range named {
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
	k.resp.Places = extension(k.placeTTL, taken.Sub(k.arrived))
	return err
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

// answer extends the session if that is wanted or due soon, and fills in what there is to tell. The
// mirror shows all that had happened when the extension was sent: so a client that hears of no loss
// had all its holds then.
func (k *keepAlive) answer(ctx context.Context, extend bool) error {
	s, st, ttl := k.session, k.stream, k.session.record.ttl()
	k.mirror.mu.Lock()
	defer k.mirror.mu.Unlock()
	if extend && (k.now || k.clock.Now() >= st.extended.Add(ttl/6)) && !s.over {
		k.mirror.mu.Unlock()
		sent, err := k.extend(ctx)
		k.mirror.mu.Lock()
		if err != nil {
			return err
		}
		k.resp.Session = extension(ttl, sent.Sub(k.arrived))
		st.extended = max(st.extended, sent)
	}
	switch {
	case s.over:
		return errSessionOver
	case ctx.Err() != nil:
		return ended(ctx) // the later call tells
	}
	st.fillLocked(s, k.mirror.rev, k.cursor, &k.resp)
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
		case k.clock.Now() >= k.arrived.Add(k.session.record.parked()+2*time.Second), k.life.Err() != nil:
			return 0, err // the client tries another member while its session has a good part of its time left
		}
		// The leader may have just died. The call stays parked until there is another leader, because
		// clients that came back at once would only make the members busy.
		pause.Sleep(ctx, retryEvery)
	}
}

// retryEvery is the time between two attempts to extend a session.
const retryEvery = 100 * time.Millisecond
