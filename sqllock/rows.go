package sqllock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// row is a row of {locks} without its name. Version 0: the name has no row. Crowd 0 means that there are no places,
// unless there are tombstones in extra.
type row struct {
	version, token int64
	owner, client  string
	ttl, delay     int64
	note           string
	taken, expires int64
	crowd          int64 // for what kind of lock there may be places; 0: there are none
	extra          string
}

// fields are the row's columns in their order.
func (r *row) fields() []any {
	return []any{&r.version, &r.token, &r.owner, &r.client, &r.ttl, &r.delay, &r.note, &r.taken, &r.expires, &r.crowd, &r.extra}
}

// placeRow is a row of {places} without its name. ticket 0: it is not written yet.
type placeRow struct {
	Owner                               string
	Ticket, Tokens, Joined, Asked, Ends int64
	Request                             string
}

// fields are the columns of a place in their order.
func (p *placeRow) fields() []any {
	return []any{&p.Owner, &p.Ticket, &p.Tokens, &p.Joined, &p.Asked, &p.Ends, &p.Request}
}

// state is what the rows of a name say: the record of package record, the last token, and tombstones.
type state struct {
	record.Record
	last       driver.Token // that was given out or reserved
	tombstones []tombstone
}

// tombstone says what to answer an owner that comes back: that its hold was broken, or that its request was
// withdrawn and must not take effect (P6).
type tombstone struct {
	Owner  string         `json:"o"`
	Broken bool           `json:"b,omitempty"`
	Until  driver.Instant `json:"u"`
}

// The JSON of the columns extra and request. Times and durations are microseconds, as in the other columns; what
// is by the owner's own clock is in nanoseconds.
type (
	savedRecord struct {
		Holds      []savedHold `json:"holds,omitempty"`
		Tombstones []tombstone `json:"gone,omitempty"`
	}
	// savedRequest has the fields of a driver.Request, so that each converts to the other.
	savedRequest struct {
		Name      string        `json:"-"`
		Owner     string        `json:"o,omitempty"`
		Mode      driver.Mode   `json:"m,omitempty"`
		Slots     int           `json:"s,omitempty"`
		Permits   int           `json:"p,omitempty"`
		TTL       time.Duration `json:"l"`
		LockDelay time.Duration `json:"d,omitempty"`
		MinHold   time.Duration `json:"i,omitempty"`
		Unfair    bool          `json:"-"`
		Note      string        `json:"n,omitempty"`
		Tokens    int           `json:"-"`
		RW        bool          `json:"-"`
	}
	savedPlace struct {
		savedRequest
		Client string `json:"c,omitempty"`
	}
	savedHold struct {
		savedRequest
		record.Hold // its tags say the rest
	}
)

// micros returns a duration in microseconds, rounded up: the server never keeps a hold for less than its holder
// trusts it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// instant makes an instant of the server's time. No clock of this host shows it.
func instant(us int64) driver.Instant { return driver.Instant(us * 1000) }

func serverTime(i driver.Instant) int64 { return micros(time.Duration(i)) }

// decode returns the state that a snapshot shows.
func (s *snapshot) decode(name string) (*state, error) {
	st, err := s.row.decode(name)
	if err != nil {
		return nil, err
	}
	for i := range s.places {
		p, err := s.places[i].decode(name)
		if err != nil {
			return nil, err
		}
		st.Queue = append(st.Queue, p)
	}
	if n := len(st.Queue) - 1; n >= s.heads {
		st.Far, st.FarAhead, st.Queue = &st.Queue[n], s.ahead, st.Queue[:n:n]
	}
	st.Unloaded = max(0, s.total-len(st.Queue))
	return st, nil
}

// decode returns the state that a row describes, without places.
func (r *row) decode(name string) (*state, error) {
	s := &state{last: driver.Token(r.token)}
	if r.extra == "" && r.owner != "" {
		s.Holds = []record.Hold{{
			Request: driver.Request{Name: name, Owner: r.owner, TTL: duration(r.ttl), LockDelay: duration(r.delay), Note: r.note},
			Client:  r.client, Token: s.last, Taken: instant(r.taken), Expires: instant(r.expires),
		}}
	}
	if r.extra == "" {
		return s, nil
	}
	var saved savedRecord
	if err := json.Unmarshal([]byte(r.extra), &saved); err != nil {
		return nil, fmt.Errorf("the record of %.40q cannot be read: %w", name, err)
	}
	for _, h := range saved.Holds {
		h.Request, h.Taken, h.Expires = h.request(name), instant(int64(h.Taken)), instant(int64(h.Expires))
		h.Valid, h.Claim = duration(int64(h.Valid)), h.Valid > 0
		s.Holds = append(s.Holds, h.Hold)
	}
	for _, f := range saved.Tombstones {
		f.Until = instant(int64(f.Until))
		s.tombstones = append(s.tombstones, f)
	}
	return s, nil
}

// request is the other way of save.
func (r savedRequest) request(name string) driver.Request {
	r.Name, r.TTL, r.LockDelay, r.MinHold = name, duration(int64(r.TTL)), duration(int64(r.LockDelay)), duration(int64(r.MinHold))
	return driver.Request(r)
}

func save(r driver.Request) savedRequest {
	r.TTL, r.LockDelay, r.MinHold = time.Duration(micros(r.TTL)), time.Duration(micros(r.LockDelay)), time.Duration(micros(r.MinHold))
	return savedRequest(r)
}

// encode returns the row of a state, without a version.
func (s *state) encode() row {
	r := row{token: int64(s.last)}
	for i := range s.Holds {
		h := &s.Holds[i]
		if r.owner == "" && !h.Closed {
			r.owner, r.client, r.ttl, r.delay = h.Owner, h.Client, micros(h.TTL), micros(h.LockDelay)
			r.note, r.taken, r.expires = h.Note, serverTime(h.Taken), serverTime(h.Expires)
		}
	}
	if !s.plain() {
		r.extra = s.text()
	}
	return r
}

// plain reports whether the columns can hold all of the state: at most one hold, exclusive, without a minimum and
// with one token. That a hold is a claim its winner knows: see client.tell.
func (s *state) plain() bool {
	if len(s.tombstones) > 0 || len(s.Holds) > 1 {
		return false
	}
	if len(s.Holds) == 0 {
		return true
	}
	h := &s.Holds[0]
	return h.Mode == driver.Exclusive && h.MinHold == 0 && !h.Closed && h.Token == s.last
}

func (s *state) text() string {
	var saved savedRecord
	for _, h := range s.Holds {
		h.Taken, h.Expires, h.Valid = driver.Instant(serverTime(h.Taken)), driver.Instant(serverTime(h.Expires)), time.Duration(micros(h.Valid))
		if !h.Claim {
			h.Since, h.Valid = 0, 0
		}
		saved.Holds = append(saved.Holds, savedHold{save(h.Request), h})
	}
	for _, f := range s.tombstones {
		f.Until = driver.Instant(serverTime(f.Until))
		saved.Tombstones = append(saved.Tombstones, f)
	}
	text, _ := json.Marshal(saved) // of strings and numbers: cannot fail
	return string(text)
}

// decode returns the place that a row describes.
func (p *placeRow) decode(name string) (record.Place, error) {
	var saved savedPlace
	if err := json.Unmarshal([]byte(p.Request), &saved); err != nil {
		return record.Place{}, fmt.Errorf("a place in the queue of %.40q cannot be read: %w", name, err)
	}
	saved.Owner, saved.Tokens = p.Owner, int(min(max(p.Tokens, 1), tokenBlock))
	return record.Place{
		Request: saved.request(name), Client: saved.Client,
		Joined: instant(p.Joined), Until: instant(p.Ends), Asked: driver.Instant(p.Asked),
	}, nil
}

// placeOf returns the row of a place.
func placeOf(p *record.Place) placeRow {
	return placeRow{
		Owner: p.Owner, Tokens: int64(p.Tokens), Joined: serverTime(p.Joined), Asked: int64(p.Asked), Ends: serverTime(p.Until),
		Request: requestText(p.Request, p.Client),
	}
}

// requestText is the column request, which has no owner.
func requestText(req driver.Request, client string) string {
	req.Owner = ""
	text, _ := json.Marshal(savedPlace{save(req), client})
	return string(text)
}

// crowdOf is the value of the column crowd while some wait for a lock of the request's kind.
func crowdOf(req *driver.Request) int64 {
	if req.Mode != driver.Slot {
		return 1
	}
	return int64(req.Slots) + 1
}

// nextCrowd returns what to write as crowd: whether there may be places. It keeps a crowd's mark until nobody holds
// the name, so that the next one that waits need not set it. Beside tombstones places are not taken without a look
// at them.
func (s *state) nextCrowd(before int64) int64 {
	var in *driver.Request
	switch {
	case len(s.tombstones) > 0:
		return 0
	case len(s.Queue) > 0:
		in = &s.Queue[0].Request
	case s.Far != nil:
		in = &s.Far.Request
	case s.Unloaded > 0 && before == 0 && len(s.Holds) > 0: // there were tombstones
		in = &s.Holds[0].Request
	case s.Unloaded > 0 || len(s.Holds) > 0:
		return before
	default:
		return 0
	}
	return crowdOf(in)
}

// settle brings the state up to now. It drops places of owners that hold the name already, or were withdrawn: such
// a place was taken by a request that came late.
func (s *state) settle(now driver.Instant, rules *record.Rules) {
	s.tombstones = slices.DeleteFunc(s.tombstones, func(f tombstone) bool { return now >= f.Until })
	rules.Least = driver.Token(serverTime(now))
	stray := func(p *record.Place) bool { return s.Held(p.Owner) != nil || s.tombstoneOf(p.Owner) != nil }
	s.Queue = slices.DeleteFunc(s.Queue, func(p record.Place) bool { return stray(&p) })
	if s.Far != nil && stray(s.Far) {
		s.Far = nil
		s.Unloaded--
	}
	s.Settle(now, rules)
}

// putTombstone puts up a tombstone, in place of one that its owner has already.
func (s *state) putTombstone(f tombstone) {
	s.tombstones = slices.DeleteFunc(s.tombstones, func(other tombstone) bool { return other.Owner == f.Owner })
	s.tombstones = append(s.tombstones, f)
}

// tombstoneOf returns the error that an owner's tombstone says, or nil if it has none.
func (s *state) tombstoneOf(owner string) error {
	switch i := slices.IndexFunc(s.tombstones, func(f tombstone) bool { return f.Owner == owner }); {
	case i < 0:
		return nil
	case s.tombstones[i].Broken:
		return driver.ErrBroken
	}
	return driver.ErrNotHeld
}

// reasonGone returns the error that says why an owner has no hold.
func (s *state) reasonGone(owner string) error {
	return cmp.Or(s.tombstoneOf(owner), driver.ErrNotHeld)
}
