package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// sessionsAt is what the keys of sessions begin with; their ids follow.
const sessionsAt = "holdfast/session/"

// record is what a session's key says.
type record struct {
	Principal string `json:"principal,omitempty"`
	Secret    string `json:"secret"` // the hash of it
	Note      string `json:"note,omitempty"`
	TTL       int64  `json:"ttl_ms"`
	LockDelay int64  `json:"lock_delay_ms,omitempty"`
	Opened    int64  `json:"opened_ms"` // by the wall clock of the member: for people only
}

func (r *record) ttl() time.Duration       { return time.Duration(r.TTL) * time.Millisecond }
func (r *record) lockDelay() time.Duration { return time.Duration(r.LockDelay) * time.Millisecond }

// lasts is how long what the session has lasts after a sign of life.
func (r *record) lasts() time.Duration { return r.ttl() + r.lockDelay() }

// newSessionID returns a random id. It is the name of the client in the session's keys.
func newSessionID() string {
	var b [table.ClientLen / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isSessionID(id string) bool {
	_, err := hex.DecodeString(id)
	return err == nil && len(id) == table.ClientLen
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// session is a session as the mirror has it. The mirror's mutex guards it.
type session struct {
	id      string
	record  record // does not change
	entries map[*entry]bool
	places  int              // entries that are places
	nodes   map[string]int64 // its ephemeral nodes: instances by path
	watches map[string]bool  // the paths of nodes that it watches
	usage   usage            // of its principal
	home    home
	over    bool
	ended   driver.Instant // when this member has learnt that it is over
	stream  *stream        // nil: no call has been parked for it at this member
}

// forgetLocked has a session have nothing.
func (s *session) forgetLocked(m *mirror) {
	s.entries, s.nodes, s.watches, s.places = map[*entry]bool{}, map[string]int64{}, map[string]bool{}, 0
	s.usage = m.usageLocked(s.record.Principal)
}

// ownerLocked returns the session of an id: also one that is over, as long as something of it is left.
func (m *mirror) ownerLocked(id string) *session {
	if s := m.sessions[id]; s != nil {
		return s
	}
	if m.ended[id] == nil {
		s := &session{id: id, over: true, ended: m.clock.Now()}
		s.forgetLocked(m)
		m.ended[id] = s
	}
	return m.ended[id]
}

// putSessionLocked takes in a session. known is what this member has made of its key before; nil: nothing.
func (m *mirror) putSessionLocked(id string, text []byte, known *session) {
	var r record
	if m.sessions[id] != nil || json.Unmarshal(text, &r) != nil {
		return
	}
	s := cmp.Or(known, &session{id: id, record: r})
	s.forgetLocked(m)
	s.usage["sessions"]++
	m.sessions[id] = s
}

func (m *mirror) deleteSessionLocked(id string) {
	if s := m.sessions[id]; s != nil {
		delete(m.sessions, id)
		m.ended[id] = s
		s.usage["sessions"]--
		s.ended = m.clock.Now()
		s.endLocked()
	}
}

// endLocked ends a session: the parked call tells it.
func (s *session) endLocked() {
	s.over = true
	if s.stream != nil {
		s.stream.wakeLocked()
	}
}

func (s *session) addLocked(e *entry) {
	s.entries[e] = true
	s.usage["locks"]++
	if e.isPlace() {
		s.places++
		if s.stream != nil {
			s.stream.wakeLocked() // places are to be confirmed more often than a session
		}
	}
}

// removeLocked takes in that an entry is gone.
func (s *session) removeLocked(e *entry, why cellv1.Reason) {
	delete(s.entries, e)
	s.usage["locks"]--
	if e.isPlace() {
		s.places--
	}
	// It is told also while a call is at work on it: that call's client may be gone, and know of the hold from a call before.
	if !s.over && !e.released && s.stream != nil {
		s.stream.addLocked(&cellv1.Event{Event: &cellv1.Event_Lost{Lost: &cellv1.Lost{
			Name: e.at.name, Request: e.request(), Reason: why, Revision: e.Created,
		}}})
	}
}

// tellLocked puts a grant into the stream: a place has become a hold, or a claim a whole one. A call of Acquire may tell it
// too. Of a hold that never was a place only that tells.
func (s *session) tellLocked(e *entry) {
	if s.stream != nil {
		s.stream.addLocked(&cellv1.Event{Event: &cellv1.Event_Granted{Granted: e.holdingLocked()}})
	}
}

// stream is what a session is told by its parked calls at this member: events, each until the client
// has said by a cursor that it knows of it. The mirror's mutex guards it.
//
// A member that does not know a cursor, because the client comes from another one or events are missing, tells all that
// the session has instead. So no event is lost, whatever happens to members and to answers.
type stream struct {
	id       string // begins its cursors
	last     uint64 // the number of the last event
	events   []*cellv1.Event
	news     chan struct{}           // one value: there is something to tell or to do
	end      context.CancelCauseFunc // ends the call that was parked last; nil: none was
	extended driver.Instant          // when the session was last extended at this member
}

// never is before any instant.
const never driver.Instant = math.MinInt64 / 2

// maxEvents is how many events wait for a client. With more it is told all that it has.
const maxEvents = 1000

func (st *stream) addLocked(e *cellv1.Event) {
	if len(st.events) >= maxEvents {
		st.restartLocked()
	}
	st.last++
	e.Number = st.last
	st.events = append(st.events, e)
	st.wakeLocked()
}

// restartLocked takes in that events are missing. It counts as one, so each cursor is before it.
func (st *stream) restartLocked() {
	st.last++
	st.events = nil
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

// afterLocked returns the events that a client with a cursor does not know, or that it must be told all: the cursor is of
// another stream, cannot be, or is before events that are missing.
func (st *stream) afterLocked(cursor string) (events []*cellv1.Event, all bool) {
	id, text, _ := strings.Cut(cursor, ":")
	n, err := strconv.ParseUint(text, 36, 64)
	first := st.last - uint64(len(st.events)) // the number before the first that waits
	if err != nil || id != st.id || n > st.last || n < first {
		return nil, true
	}
	return st.events[n-first:], false
}

// fillLocked puts what a client with a cursor does not know into a response, as it is known at a revision.
func (st *stream) fillLocked(s *session, rev int64, cursor string, r *cellv1.KeepAliveResponse) {
	if st.events, r.Complete = st.afterLocked(cursor); r.Complete {
		r.Revision = rev
		r.Holdings = make([]*cellv1.Holding, 0, len(s.entries))
		for e := range s.entries {
			r.Holdings = append(r.Holdings, e.holdingLocked())
		}
		for path := range s.watches {
			st.addLocked(&cellv1.Event{Event: &cellv1.Event_Node{Node: &cellv1.NodeEvent{
				Path: path, Kind: cellv1.NodeEventKind_NODE_EVENT_KIND_REREAD, Revision: rev,
			}}})
		}
	}
	r.Events = slices.Clone(st.events)
	r.Cursor = st.cursorLocked()
}

// streamLocked returns the session's stream, made if there is none.
func (s *session) streamLocked() *stream {
	if s.stream == nil {
		s.stream = &stream{id: rand.Text()[:8], news: make(chan struct{}, 1), extended: never}
	}
	return s.stream
}

// sessions serves the API of sessions, and locks that of locks.
type (
	sessions struct{ *front }
	locks    struct{ *front }
)

// defaultTTL is that of sessions which ask for none.
const defaultTTL = 30 * time.Second

// Open opens a session.
func (f sessions) Open(ctx context.Context, m *cellv1.OpenRequest) (*cellv1.OpenResponse, error) {
	arrived := f.clock.Now()
	rec := record{
		Principal: principalOf(ctx), Note: m.Note,
		TTL: cmp.Or(m.Ttl.AsDuration(), defaultTTL).Milliseconds(), LockDelay: m.LockDelay.AsDuration().Milliseconds(),
		Opened: time.Now().UnixMilli(),
	}
	if rec.ttl() < f.minTTL {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "ttl: %v is too short: this cell's shortest is %v", rec.ttl(), f.minTTL)
	}
	if err := f.mayHave(ctx, callerOf(ctx), "sessions", 1); err != nil {
		return nil, err
	}
	id, secret := newSessionID(), rand.Text()
	rec.Secret = hashed(secret)
	text, _ := json.Marshal(&rec) // of strings and numbers: cannot fail
	sent, err := f.alive(ctx)
	if err != nil {
		return nil, err
	}
	// If what follows fails the session ends by itself: nobody knows of it.
	if _, err := f.txn(ctx, when(nil,
		table.PutOp([]byte(sessionsAt+id), string(text), 0), table.PutOp([]byte(homesAt+id), f.aliveness.process, 0),
	)); err != nil {
		return nil, ofStore(ctx, err)
	}
	f.mirror.mu.Lock()
	s := f.mirror.sessions[id]
	if s == nil || s.over || s.home.ending {
		f.mirror.mu.Unlock()
		return nil, errSessionOver // this took longer than its TTL
	}
	st := s.streamLocked()
	st.extended = sent
	cursor := st.cursorLocked()
	f.mirror.mu.Unlock()
	return &cellv1.OpenResponse{
		Session: id + "." + secret, Id: id, Ttl: durationpb.New(rec.ttl()), LockDelay: durationpb.New(rec.lockDelay()),
		ExtendedAfter: durationpb.New(sent.Sub(arrived)), Cursor: cursor,
	}, nil
}

// Close ends a session and all that it has.
func (f sessions) Close(ctx context.Context, r *cellv1.CloseRequest) (*cellv1.CloseResponse, error) {
	s, err := f.session(ctx, r.Session)
	if err == nil {
		err = f.end(ctx, s, nil, false)
	}
	return &cellv1.CloseResponse{}, err
}

// end ends a session if some comparisons succeed, and all that it has. First no member serves it any more.
func (f *front) end(ctx context.Context, s *session, same compares, killed bool) error {
	resp, err := f.txn(ctx, when(same, table.DeleteOp([]byte(sessionsAt+s.id)), table.DeleteOp([]byte(homesAt+s.id))))
	if err != nil || !resp.Succeeded {
		return ofStore(ctx, err)
	}
	if err := f.clear(ctx, s, killed); err != nil {
		return err
	}
	return f.sync(ctx)
}

// clear removes what a session has left that is over: it gets no more, because whatever is put for a session is put only
// while it exists. The names of its holds stay closed for their minimum, and for their lock-delay if it was killed: a
// session that expires lasts for its lock-delay as well.
func (f *front) clear(ctx context.Context, s *session, killed bool) error {
	var entries []removal
	var keys []*etcdserverpb.RequestOp
	f.mirror.mu.Lock()
	for e := range s.entries {
		r := removal{entry: e, unused: e.isPlace()} // nobody has begun to use a claim
		if killed && e.holds {
			r.unused, r.closed = false, e.Delay()
		}
		entries = append(entries, r)
	}
	for path, instance := range s.nodes {
		key := []byte(nodesAt + path)
		same := compares{table.CompareCreated(key, nil, etcdserverpb.Compare_EQUAL, instance)}
		keys = append(keys, table.TxnOp(when(same, table.DeleteOp(key), table.DeleteOp([]byte(contentsAt+path)))))
	}
	for path := range s.watches {
		keys = append(keys, table.DeleteOp([]byte(watchesAt+s.id+"/"+path)))
	}
	f.mirror.mu.Unlock()
	_, err := f.remove(ctx, entries)
	for some := range slices.Chunk(keys, removalsAtOnce/2) {
		if err == nil {
			_, err = f.put(ctx, when(nil, some...))
		}
	}
	return ofStore(ctx, err)
}

// List lists the sessions.
func (f sessions) List(ctx context.Context, m *cellv1.SessionsListRequest) (*cellv1.SessionsListResponse, error) {
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(f.mirror.sessions)), func(id string) bool { return id <= m.After })
	limit := limitOf(m.Limit)
	resp := &cellv1.SessionsListResponse{More: len(ids) > limit}
	for _, id := range ids[:min(len(ids), limit)] {
		resp.Sessions = append(resp.Sessions, f.mirror.sessions[id].infoLocked())
	}
	return resp, nil
}

func (s *session) infoLocked() *cellv1.SessionInfo {
	waiting, rec := 0, s.record
	for e := range s.entries {
		if !e.holds {
			waiting++
		}
	}
	return &cellv1.SessionInfo{
		Id: s.id, Principal: rec.Principal, Note: rec.Note,
		Ttl: durationpb.New(rec.ttl()), LockDelay: durationpb.New(rec.lockDelay()),
		Open:  durationpb.New(max(time.Since(time.UnixMilli(rec.Opened)), 0)),
		Holds: int32(len(s.entries) - waiting), Places: int32(waiting),
	}
}

// Kill ends a session for an operator. The names of its holds stay closed for its lock-delay.
func (f sessions) Kill(ctx context.Context, r *cellv1.KillRequest) (*cellv1.KillResponse, error) {
	s, err := f.known(ctx, r.Id)
	if err == nil {
		err = f.end(ctx, s, nil, true)
	}
	if err == nil {
		f.note(ctx, "a session was killed", "session", s.id, "of", s.record.Principal)
	}
	return &cellv1.KillResponse{}, err
}
