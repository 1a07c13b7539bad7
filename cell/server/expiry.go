package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A session's home is the process of the member that its client last spoke to: a key of the session says which. Its home
// takes the client's signs of life, in its memory, and knows when the session is over. When the client speaks to another
// member, that one becomes its home first. So a member that takes a sign of life need ask nobody whether
// the session has ended elsewhere.

// homesAt is what the keys of homes begin with; the ids of sessions follow.
const homesAt = "holdfast/home/"

// home is what a member knows of a session's home. The mirror's mutex guards it.
type home struct {
	process string // "": it has none
	sighting
	// What only the home itself knows: when the client last gave a sign of life for its session, and for its
	// places; 0: it has not yet.
	heard, heardPlaces driver.Instant
	// ending says that the home has begun to end the session, or its places. It cannot take signs of life any more, unless it
	// becomes the home once more.
	ending bool
}

func (m *mirror) putHomeLocked(id string, process []byte, rev int64) {
	if s := m.sessions[id]; s != nil {
		// It may be the same as before, if all was read anew: what the home has begun to end may end yet.
		ending := s.home.ending && s.home.rev == rev
		s.home = home{process: string(process), sighting: sighting{rev, m.clock.Now()}, ending: ending}
	}
}

// exists compares that a session is not over.
func exists(id string) *etcdserverpb.Compare {
	return table.CompareCreated([]byte(sessionsAt+id), nil, etcdserverpb.Compare_GREATER, 0)
}

// doFor does something for a session, if that is not over.
func (f *front) doFor(ctx context.Context, s *session, op *etcdserverpb.RequestOp) error {
	resp, err := f.txn(ctx, when(compares{exists(s.id)}, op))
	if err == nil && !resp.Succeeded {
		return errSessionOver
	}
	return ofStore(ctx, err)
}

// confirm takes a sign of life for a session, or for its places, and returns from when on it counts. This process becomes the
// session's home if it is not. The sign counts if nothing that the mirror shows has come between it and now. The mirror
// shows all that had happened by then: so the session, or its places, had not ended, and do not within their time (P1).
func (f *front) confirm(ctx context.Context, s *session, places bool) (driver.Instant, error) {
	taken, under := driver.Instant(0), int64(0) // under: the revision at which this process became the home
	for {
		now, err := f.alive(ctx)
		if err != nil {
			return 0, err
		}
		f.mirror.mu.Lock()
		over, h := s.over, &s.home
		here := h.process == f.aliveness.process
		switch {
		case over:
			err = errSessionOver
		case taken != 0 && here && h.rev == under:
			f.mirror.mu.Unlock()
			return taken, nil
		case !here || h.ending:
			taken = 0
		default:
			taken, under = now, h.rev
			if places {
				h.heardPlaces = max(h.heardPlaces, now)
			} else {
				h.heard = max(h.heard, now)
			}
		}
		f.mirror.mu.Unlock()
		switch {
		case err != nil:
		case taken == 0:
			err = f.doFor(ctx, s, table.PutOp([]byte(homesAt+s.id), f.aliveness.process, 0))
		default:
			err = f.sync(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
}

// aliveAt is what the keys begin with that tell that members live. What a process of a member is called
// follows: each start of a member is another process.
const aliveAt = "holdfast/alive/"

// aliveFor is for how long a member may take signs of life of sessions after it has begun to tell the cell that it lives.
// Others count on it: they end a session whose member is silent, but that much later.
const aliveFor = 2 * time.Second

// sighting is when a key was seen to change last.
type sighting struct {
	rev  int64 // of the change; 0: the key is not there
	seen driver.Instant
}

// aliveness tells the cell that this process of a member lives, when somebody relies on it. A cell in which nobody
// keeps a session writes nothing.
type aliveness struct {
	process string

	mu   sync.Mutex
	sent driver.Instant // when that began which told it last; 0: nothing has
	call chan struct{}  // closed when what is telling it has ended; nil: nothing is
	err  error          // of what told it last
}

// alive returns now, at a time when all members know, or cannot overlook, that this one lives (aliveFor). It
// tells them first if it must, and in good time again.
func (f *front) alive(ctx context.Context) (driver.Instant, error) {
	l := &f.aliveness
	for waited := false; ; waited = true {
		l.mu.Lock()
		now := f.clock.Now()
		known := l.sent != 0 && now < l.sent.Add(aliveFor)
		err := l.err
		if l.call == nil && (!known || now >= l.sent.Add(aliveFor/2)) {
			l.call = make(chan struct{})
			f.background.Go(f.tellAlive)
		}
		call := l.call
		l.mu.Unlock()
		switch {
		case known:
			return now, nil
		case waited && err != nil:
			return 0, ofStore(ctx, err)
		}
		select {
		case <-call:
		case <-ctx.Done():
			return 0, ended(ctx)
		}
	}
}

// tellAlive puts the key, for all that wait for the call.
func (f *front) tellAlive() {
	l, sent := &f.aliveness, f.clock.Now()
	_, err := f.store.Txn(f.life, when(nil, table.PutOp([]byte(aliveAt+l.process), "", 0)))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err == nil {
		l.sent = sent
	}
	close(l.call)
	l.call = nil
}

// A session has no lease of etcd's: etcd's leader keeps the time of leases in its memory, and one that was stopped takes all
// of them for expired when it goes on, though their clients have come to its successor meanwhile; what it does then reaches
// the successor. So a session, and its places, are ended by a transaction, which proves that nobody can have heard from the
// client (P1). There are two that know that:
//
//   - The home knows when it has last heard from the client. The transaction compares that it still is the home.
//   - Any member knows that the home is silent: it has seen neither that the home has changed nor that the home told that it
//     lives, for so long that no sign of life which the home can have taken counts any more (aliveFor). The transaction
//     compares that both are so still. The leader does this.
//
// Whoever was stopped meanwhile only comes later. A transaction that is late itself finds something changed.

// expireEvery is how often a member looks whose time is over.
const expireEvery = 500 * time.Millisecond

// expireAtOnce is how many sessions a member ends side by side.
const expireAtOnce = 32

// expired is a session that is over, or of which places are.
type expired struct {
	*session
	places []*entry // only these are; nil: the session is
	left   bool     // it has ended, and something of it is left: whoever has ended it may have died
	rev    int64    // of its home
	same   compares
}

// expire ends what is over.
func (f *front) expire() {
	var ending sync.WaitGroup
	turn := make(chan struct{}, expireAtOnce)
	for _, e := range f.expired() {
		turn <- struct{}{}
		ending.Go(func() {
			defer func() { <-turn }()
			f.notYet(f.endExpired(e))
		})
	}
	ending.Wait()
	if f.leads() {
		f.notYet(f.forgetOld(f.life))
	}
}

// notYet notes that something which is over has not ended yet. It is tried again.
func (f *front) notYet(err error) {
	if err != nil && f.life.Err() == nil {
		f.log.Debug("what is over has not ended yet", "error", err)
	}
}

// expired returns what is over, and does not take any more signs of life for it if this is its home.
func (f *front) expired() (all []expired) {
	leads := f.leads()
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	now := f.clock.Now()
	for id, s := range f.mirror.ended {
		if len(s.entries)+len(s.nodes)+len(s.watches) == 0 {
			delete(f.mirror.ended, id)
		} else if leads && now >= s.ended.Add(within) {
			all = append(all, expired{session: s, left: true})
		}
	}
	for _, s := range f.mirror.sessions {
		mine := s.home.process == f.aliveness.process
		if !mine && !leads {
			continue
		}
		end, endOfPlaces := f.endsLocked(s)
		e := expired{session: s, rev: s.home.rev}
		if now < end {
			if s.places == 0 {
				continue
			}
			who := f.guard.named(s.record.Principal)
			for entry := range s.entries {
				// A client that waits already feels that its principal may not lock the name any more. A whole hold stays.
				if entry.isPlace() && (now >= endOfPlaces || mine && !f.mirror.mayLocked(who, entry.at.name, toWrite)) {
					e.places = append(e.places, entry)
				}
			}
			if e.places == nil {
				continue
			}
		}
		s.home.ending = s.home.ending || mine
		e.same = append(e.same, table.CompareChanged([]byte(homesAt+s.id), e.rev))
		if !mine {
			e.same = append(e.same, table.CompareChanged([]byte(aliveAt+s.home.process), f.mirror.alive[s.home.process].rev))
		}
		all = append(all, e)
	}
	return all
}

// endsLocked returns when a session is over, and when its places are, unless its client gives a sign of life.
func (f *front) endsLocked(s *session) (end, places driver.Instant) {
	h := &s.home
	lasts := s.record.lasts()
	if h.process == f.aliveness.process {
		return max(h.seen, h.heard).Add(lasts), max(h.seen, h.heardPlaces).Add(f.placeTTL)
	}
	// A mirror that was loaded has seen all then.
	silent := max(h.seen, f.mirror.alive[h.process].seen, f.mirror.loaded).Add(aliveFor)
	return silent.Add(lasts), silent.Add(f.placeTTL)
}

// endExpired ends what is over, if it still is.
func (f *front) endExpired(e expired) error {
	switch {
	case e.left: // it may have been killed
		return f.clear(f.life, e.session, true)
	case e.places != nil:
		return f.endPlaces(f.life, e)
	}
	return f.end(f.life, e.session, e.same, false)
}

// endPlaces takes places and claims of a session away, and then lets its home take signs of life again.
func (f *front) endPlaces(ctx context.Context, e expired) error {
	var all []removal
	f.mirror.mu.Lock()
	for _, entry := range e.places {
		if entry.isPlace() {
			all = append(all, removal{entry: entry, unused: true, tell: true, place: entry.Mod})
		}
	}
	f.mirror.mu.Unlock()
	for some := range slices.Chunk(all, removalsAtOnce) {
		resp, err := f.txn(ctx, when(e.same, table.TxnOp(table.Remove(f.removals(some), 0))))
		if err != nil || !resp.Succeeded {
			return err
		}
	}
	// Each of them is known to have been done, so none can come later and end a place that is confirmed.
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	if e.home.rev == e.rev {
		e.home.ending = false
	}
	return nil
}

// A hold that ends before its minimum is over, or whose session is killed with a lock-delay, leaves its key behind: an
// entry without an owner and without a lease, which closes the name. Each member knows since when it is closed, and the
// leader deletes the key when the time is over. So no clock that was set, and no leader that stood still, opens a name
// too early (P5). After a fail-over a name may stay closed for longer: a member that has just read everything counts
// from then on.

// opens returns when the minimum of a hold is over, or the time of what closes a name.
func (e *entry) opens() driver.Instant {
	return e.since.Add(time.Duration(e.Value.MinHold) * time.Millisecond)
}

// closedText is the value of a hold's key that closes the name for a while.
func closedText(e *entry, lasts time.Duration) string {
	v := e.Value
	v.Owner, v.Note, v.Closed, v.Place, v.MinHold = "", "", true, false, lasts.Milliseconds()+1
	v.Until = time.Now().Add(lasts).UnixMilli()
	if e.session != nil {
		v.Principal = e.session.record.Principal
	}
	return v.String()
}

// tombstone says that a request is over, or that an operator has broken its hold.
type tombstone struct {
	sighting
	broken bool
}

// tombstonesLast is how long the cell remembers at least that a request is over (P6).
const tombstonesLast = 2 * time.Minute

// silentFor is after how long a silent process is forgotten.
const silentFor = 10 * time.Minute

// forgetOld deletes what has closed names for long enough, tombstones that are old enough, and the keys of processes that
// have been silent for long and are nobody's home: mostly these have ended. One that lives tells so before it becomes a home.
func (f *front) forgetOld(ctx context.Context) error {
	m, now := f.mirror, f.clock.Now()
	var old []*etcdserverpb.RequestOp
	forget := func(key string, rev int64) {
		same := compares{table.CompareChanged([]byte(key), rev)}
		old = append(old, table.TxnOp(when(same, table.DeleteOp([]byte(key)))))
	}
	m.mu.Lock()
	for e := range m.closed {
		if now >= e.opens() {
			forget(e.Key, e.Mod)
		}
	}
	for key, t := range m.tombstones {
		if now >= max(t.seen, m.loaded).Add(tombstonesLast) {
			forget(key, t.rev)
		}
	}
	for process, last := range m.alive {
		if last.rev != 0 && now >= max(last.seen, m.loaded).Add(silentFor) && !m.isHomeLocked(process) {
			forget(aliveAt+process, last.rev)
		}
	}
	m.mu.Unlock()
	for some := range slices.Chunk(old, removalsAtOnce) {
		if _, err := f.store.Txn(ctx, when(nil, some...)); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) isHomeLocked(process string) bool {
	for _, s := range m.sessions {
		if s.home.process == process {
			return true
		}
	}
	return false
}
