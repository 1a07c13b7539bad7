package server

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// A session's home is the process of the member that its client last spoke to: a key of the session says which. Its home
// takes the client's signs of life, in its memory, and knows when the session is over. When the client speaks to another
// member, that one becomes its home first. So a member that takes a sign of life need ask nobody whether
// the session has ended elsewhere: see expiry.go.

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

// settle makes this process a session's home.
func (f *front) settle(ctx context.Context, s *session) error {
	resp, err := f.txn(ctx, when(compares{exists(s.id)}, table.PutOp([]byte(homesAt+s.id), f.aliveness.process, 0)))
	switch {
	case err != nil:
		return ofStore(ctx, err)
	case !resp.Succeeded:
		return errSessionOver
	}
	return nil
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
			err = f.settle(ctx, s)
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
