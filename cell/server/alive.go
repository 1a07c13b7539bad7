package server

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

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
	ctx, cancel := context.WithTimeout(f.life, within)
	defer cancel()
	l := &f.aliveness
	sent := f.clock.Now()
	_, call.err = f.store.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
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
