package server

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// stream is what a session is told by its parked calls at this member: events, each until the client
// has said by a cursor that it knows of it. The mirror's mutex guards it.
//
// A member that does not know a cursor, because the client comes from another one, tells all that the
// session has instead. So no event is lost, whatever happens to members and to answers.
type stream struct {
	id     string // begins its cursors
	last   uint64 // the number of the last event
	events []*cellv1.Event
	// restart says that events are missing, so the next answer tells all.
	restart  bool
	news     chan struct{}  // one value: there is something to tell or to do
	call     chan struct{}  // the call that is parked: closed when a later one has come; nil: none is
	extended driver.Instant // when the session was last extended at this member; 0: it never was
	urged    driver.Instant // when the client last wanted it to be extended at once; 0: it never did
}

// maxEvents is how many events wait for a client. With more it is told all that it has.
const maxEvents = 1000

func newStream() *stream {
	return &stream{id: rand.Text()[:8], restart: true, news: make(chan struct{}, 1)}
}

func (st *stream) addLocked(e *cellv1.Event) {
	st.last++
	e.Number = st.last
	if len(st.events) >= maxEvents {
		st.restartLocked()
	}
	if !st.restart {
		st.events = append(st.events, e)
	}
	st.wakeLocked()
}

// restartLocked takes in that events are missing. It counts as one: so a client that does not get the next answer still has
// a cursor before it, and is told all again.
func (st *stream) restartLocked() {
	st.last++
	st.restart, st.events = true, nil
	st.wakeLocked()
}

func (st *stream) wakeLocked() {
	select {
	case st.news <- struct{}{}:
	default:
	}
}

// cursor returns what a client says back that has taken in everything up to the last event.
func (st *stream) cursorLocked() string { return st.id + ":" + strconv.FormatUint(st.last, 36) }

// acknowledgeLocked takes in which events the client knows. A cursor of another stream, or one that cannot be, is of a
// client that must be told all.
func (st *stream) acknowledgeLocked(cursor string) {
	id, text, _ := strings.Cut(cursor, ":")
	n, err := strconv.ParseUint(text, 36, 64)
	first := st.last - uint64(len(st.events)) // the number before the first that waits
	if err != nil || id != st.id || n > st.last || n < first && !st.restart {
		st.restart, st.events = true, nil
	} else if !st.restart {
		st.events = st.events[n-first:]
	}
}

// fillLocked puts what there is to tell into a response, as it is known at a revision.
func (st *stream) fillLocked(s *session, rev int64, r *cellv1.KeepAliveResponse) {
	if st.restart {
		r.Complete, r.Revision = true, rev
		r.Holdings = make([]*cellv1.Holding, 0, len(s.entries))
		for e := range s.entries {
			r.Holdings = append(r.Holdings, e.holdingLocked())
		}
		st.restart, st.events = false, nil
		for path := range s.watches {
			st.addLocked(&cellv1.Event{Event: &cellv1.Event_Node{Node: &cellv1.NodeEvent{
				Path: path, Kind: cellv1.NodeEventKind_NODE_EVENT_KIND_REREAD, Revision: rev,
			}}})
		}
	}
	r.Events = append([]*cellv1.Event(nil), st.events...)
	r.Cursor = st.cursorLocked()
}

// pendingLocked reports whether there is something to tell.
func (st *stream) pendingLocked() bool { return st.restart || len(st.events) > 0 }

// streamLocked returns the session's stream, made if there is none.
func (s *session) streamLocked() *stream {
	if s.stream == nil {
		s.stream = newStream()
	}
	return s.stream
}

// parkLocked makes a call the one that is parked for a session. One before it is answered.
func (st *stream) parkLocked() (superseded chan struct{}) {
	if st.call != nil {
		close(st.call)
	}
	st.call = make(chan struct{})
	return st.call
}

// everyLocked returns after how much of the TTL the parked call extends the session: a third, or half
// if the client sees to it by itself each third.
func (st *stream) everyLocked(s *session) time.Duration {
	if st.urged != 0 && st.urged == st.extended {
		return s.record.ttl() / 2
	}
	return s.record.ttl() / 3
}
