package sqllock

import (
	"container/list"
	"context"
	"sync"
)

// priority says how urgent a request is. The lowest goes first.
type priority uint8

const (
	renewing  priority = iota // of trusted holds, which end if it comes too late
	releasing                 // others wait for it
	taking                    // a hold or a place in the queue
	reading                   // all others
	priorities
)

// queue lets few in at a time: the most urgent first, and equals in order of arrival.
type queue struct {
	mu      sync.Mutex
	room    int // how many may be inside
	inside  int
	waiting [priorities]list.List // of *ticket
}

// ticket is one stay, or wait, in a queue. The queue's mutex guards it.
type ticket struct {
	priority priority
	admitted func() // called when a ticket that had to wait is let in
	inside   bool
	over     bool // it has left, or has given up
	at       *list.Element
}

// enter lets the ticket in, or queues it, and reports whether it is inside now. A ticket
// that has entered before is left as it is.
func (q *queue) enter(t *ticket) (inside bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case t.over, t.inside, t.at != nil:
	case q.inside < q.room: // then nobody waits
		q.inside++
		t.inside = true
		return true
	default:
		t.at = q.waiting[t.priority].PushBack(t)
	}
	return false
}

// isInside reports whether the ticket has been let in.
func (q *queue) isInside(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.inside
}

// leave ends a stay or a wait.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveLocked(t)
}

func (q *queue) leaveLocked(t *ticket) {
	if t.inside {
		q.inside--
	} else if t.at != nil {
		q.waiting[t.priority].Remove(t.at)
	}
	t.inside, t.at, t.over = false, nil, true
	q.admitLocked()
}

// setRoom says how many may be inside.
func (q *queue) setRoom(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room = n
	q.admitLocked()
}

func (q *queue) admitLocked() {
	for p := range q.waiting {
		for l := &q.waiting[p]; l.Len() > 0 && q.inside < q.room; {
			t := l.Remove(l.Front()).(*ticket)
			t.inside, t.at = true, nil
			q.inside++
			t.admitted()
		}
	}
}

// wait returns when the ticket is inside, and whether it had to wait, or the context's
// error.
func (q *queue) wait(ctx context.Context, t *ticket) (waited bool, err error) {
	admitted := make(chan struct{})
	t.admitted = func() { close(admitted) }
	if q.enter(t) {
		return false, nil
	}
	select {
	case <-admitted:
		return true, nil
	case <-ctx.Done():
		q.leave(t)
		return true, ctx.Err()
	}
}
