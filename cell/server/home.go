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
	resp, err := f.store.Txn(ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{exists(s.id)},
		Success: []*etcdserverpb.RequestOp{table.PutOp([]byte(homesAt+s.id), f.aliveness.process, 0)},
	})
	if err == nil {
		err = f.mirror.reach(ctx, resp.Header.Revision)
	}
	switch {
	case err != nil:
		return ofStore(ctx, err)
	case !resp.Succeeded:
		return errSessionOver
	}
	return nil
}

// sign is a sign of life that a session's home has taken. It counts from at on, if that was its home (rev) for long enough:
// see confirm.
type sign struct {
	at  driver.Instant
	rev int64
}

// takeSign takes a sign of life for a session, and for its places if they are what it is given for. This process becomes
// its home if it is not.
func (f *front) takeSign(ctx context.Context, s *session, places bool) (sign, error) {
	for {
		now, err := f.alive(ctx)
		if err != nil {
			return sign{}, err
		}
		f.mirror.mu.Lock()
		over, h := s.over, &s.home
		if !over && h.process == f.aliveness.process && !h.ending {
			if places {
				h.heardPlaces = max(h.heardPlaces, now)
			} else {
				h.heard = max(h.heard, now)
			}
			taken := sign{now, h.rev}
			f.mirror.mu.Unlock()
			return taken, nil
		}
		f.mirror.mu.Unlock()
		if over {
			return sign{}, errSessionOver
		}
		if err := f.settle(ctx, s); err != nil {
			return sign{}, err
		}
	}
}

// stands reports whether nothing that the mirror shows has come between a sign of life and now: then it counts.
func (f *front) stands(s *session, taken sign) bool {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return !s.over && s.home.process == f.aliveness.process && s.home.rev == taken.rev
}

// confirm takes a sign of life that counts. The mirror shows all that had happened by then: so the
// session, or its places, had not ended, and do not within their time (P1).
func (f *front) confirm(ctx context.Context, s *session, places bool) (sign, error) {
	for {
		taken, err := f.takeSign(ctx, s, places)
		if err != nil {
			return sign{}, err
		}
		if err := f.sync(ctx); err != nil {
			return sign{}, err
		}
		if f.stands(s, taken) {
			return taken, nil
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
	call *aliveCall     // under way; nil: none is
}

// aliveCall tells it once.
type aliveCall struct {
	done chan struct{} // closed when it has ended
	err  error         // to be read then
}

// alive returns now, at a time when all members know, or cannot overlook, that this one lives (aliveFor). It
// tells them first if it must, and in good time again.
func (f *front) alive(ctx context.Context) (driver.Instant, error) {
	l := &f.aliveness
	for {
		l.mu.Lock()
		now := f.clock.Now()
		known := l.sent != 0 && now < l.sent.Add(aliveFor)
		if l.call == nil && (!known || now >= l.sent.Add(aliveFor/2)) {
			l.call = &aliveCall{done: make(chan struct{})}
			call := l.call
			f.background.Go(func() { f.tellAlive(call) })
		}
		call := l.call
		l.mu.Unlock()
		if known {
			return now, nil
		}
		select {
		case <-call.done:
			if call.err != nil {
				return 0, ofStore(ctx, call.err)
			}
		case <-ctx.Done():
			return 0, ended(ctx)
		}
	}
}

// tellAlive puts the key, for all that wait for the call.
func (f *front) tellAlive(call *aliveCall) {
	l := &f.aliveness
	sent := f.clock.Now()
	_, call.err = f.store.Txn(f.life, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		table.PutOp([]byte(aliveAt+l.process), "", 0),
	}})
	l.mu.Lock()
	if l.call = nil; call.err == nil {
		l.sent = sent
	}
	l.mu.Unlock()
	close(call.done)
}

// seeLocked takes in that a member's process has told that it lives, or that its key is gone.
func (m *mirror) seeLocked(process string, rev int64) {
	m.alive[process] = sighting{rev, m.clock.Now()}
}
