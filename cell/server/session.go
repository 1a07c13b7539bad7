package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
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

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// admits reports whether a caller may use the session.
func (r *record) admits(principal, secret string) bool {
	same := subtle.ConstantTimeCompare([]byte(hashed(secret)), []byte(r.Secret)) == 1
	return same && r.Principal == principal
}

// newSessionID returns a random id. It is the number of the lease of its holds, and the name of the
// client in its keys. It is even: the next number is the lease of the session's places.
func newSessionID() string {
	var b [8]byte
	rand.Read(b[:])
	n := binary.BigEndian.Uint64(b[:])>>1&^1 | 1<<62 // positive, and of 16 digits
	return strconv.FormatUint(n, 16)
}

// leaseOf returns the lease of a session's holds. It is 0 if there is no such session.
func leaseOf(id string) int64 {
	n, err := strconv.ParseInt(id, 16, 64)
	if err != nil || len(id) != table.ClientLen || n < 1<<62 || n&1 != 0 {
		return 0
	}
	return n
}

// placeLeaseOf returns the lease of a session's places.
func placeLeaseOf(id string) int64 { return leaseOf(id) | 1 }

// sessionID returns the id of the session whose lease it is.
func sessionID(lease int64) string { return strconv.FormatInt(lease, 16) }

// newSecret returns a secret of 128 bits.
func newSecret() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// credential takes what Open has returned apart.
func credential(text string) (id, secret string, err error) {
	id, secret, _ = strings.Cut(text, ".")
	if leaseOf(id) == 0 || secret == "" || len(secret) > 64 {
		return "", "", refuse(cellv1.Reason_REASON_INVALID, "session: what Open has returned is wanted")
	}
	return id, secret, nil
}

// session is a session as the mirror has it. The mirror's mutex guards it.
type session struct {
	id      string
	record  record // does not change
	entries map[*entry]bool
	places  int             // entries on the lease of places
	placed  bool            // whether there were any, so that there is such a lease
	watches map[string]bool // the paths of nodes that it watches
	usage   usage           // of its principal
	home    home
	over    bool
	stream  *stream // nil: no call has been parked for it at this member
}

func (m *mirror) putSessionLocked(id string, text []byte) {
	var r record
	if json.Unmarshal(text, &r) != nil {
		return
	}
	s := m.sessions[id]
	if s == nil {
		s = &session{id: id, record: r, entries: map[*entry]bool{}, watches: map[string]bool{}}
		s.usage = m.usageLocked(r.Principal)
		s.usage["sessions"]++
		m.sessions[id] = s
	}
}

func (m *mirror) deleteSessionLocked(id string) {
	if s := m.sessions[id]; s != nil {
		delete(m.sessions, id)
		s.usage["sessions"]--
		for path := range s.watches {
			m.unwatchLocked(s, path)
		}
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
		s.placed = true
		if s.stream != nil {
			s.stream.wakeLocked() // places are to be confirmed more often than a session
		}
	}
}

// removeLocked takes in that an entry is gone.
func (s *session) removeLocked(e *entry, why cellv1.Reason) {
	if !s.entries[e] {
		return
	}
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

// grantedLocked takes in that a place has become a hold. Of a hold that never was a place the call
// of Acquire tells.
func (s *session) grantedLocked(e *entry) {
	if s.entries[e] && e.isPlace() {
		s.tellLocked(e)
	}
}

// movedLocked takes in that an entry has come to another lease: a claim has become a whole hold.
func (s *session) movedLocked(e *entry, wasPlace bool) {
	if !s.entries[e] || wasPlace == e.isPlace() {
		return
	}
	if !wasPlace {
		s.places++
		return
	}
	s.places--
	s.tellLocked(e)
}

// tellLocked puts a grant into the stream. A call of Acquire may tell it too.
func (s *session) tellLocked(e *entry) {
	if s.stream != nil {
		s.stream.addLocked(&cellv1.Event{Event: &cellv1.Event_Granted{Granted: e.holdingLocked()}})
	}
}
