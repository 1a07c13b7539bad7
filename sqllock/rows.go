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

// The JSON of the columns extra and request. Instants of the server are microseconds, as in the other columns;
// Asked is by the owner's own clock, in nanoseconds.
type (
	savedRecord struct {
		Holds      []savedHold `json:"holds,omitempty"`
		Tombstones []tombstone `json:"gone,omitempty"`
	}
	savedRequest struct {
		Owner   string         `json:"o,omitempty"`
		Client  string         `json:"c,omitempty"`
		Mode    driver.Mode    `json:"m,omitempty"`
		Slots   int            `json:"s,omitempty"`
		Permits int            `json:"p,omitempty"`
		TTL     int64          `json:"l"`
		Delay   int64          `json:"d,omitempty"`
		MinHold int64          `json:"i,omitempty"`
		Note    string         `json:"n,omitempty"`
		Asked   driver.Instant `json:"a,omitempty"`
	}
	savedHold struct {
		savedRequest
		Closed  bool         `json:"x,omitempty"`
		Token   driver.Token `json:"t"`
		Last    driver.Token `json:"b,omitempty"` // of its block, where that is wider than one
		Taken   int64        `json:"k"`
		Expires int64        `json:"e"`
		// Claim is for how long, from Asked, a hold is valid that was handed over and not yet renewed.
		Claim int64 `json:"v,omitempty"`
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
	if s.far != nil {
		p, err := s.far.decode(name)
		if err != nil {
			return nil, err
		}
		st.Far, st.FarAhead = &p, s.farAhead
	}
	st.Unloaded = s.unloaded
	return st, nil
}

// decode returns the state that a row describes, without places.
func (r *row) decode(name string) (*state, error) {
	s := &state{last: driver.Token(r.token)}
	switch {
	case r.extra != "":
		return s, s.parse(name, r.extra)
	case r.owner != "":
		s.Holds = []record.Hold{{
			Request: driver.Request{Name: name, Owner: r.owner, TTL: duration(r.ttl), LockDelay: duration(r.delay), Note: r.note},
			Client:  r.client, Token: s.last, Taken: instant(r.taken), Expires: instant(r.expires),
		}}
	}
	return s, nil
}

func (s *state) parse(name, text string) error {
	var saved savedRecord
	if err := json.Unmarshal([]byte(text), &saved); err != nil {
		return fmt.Errorf("the record of %.40q cannot be read: %w", name, err)
	}
	for i := range saved.Holds {
		h := &saved.Holds[i]
		s.Holds = append(s.Holds, record.Hold{
			Request: h.request(name), Client: h.Client, Closed: h.Closed, Token: h.Token, Last: h.Last,
			Taken: instant(h.Taken), Expires: instant(h.Expires), Since: h.Asked, Valid: duration(h.Claim), Claim: h.Claim > 0,
		})
	}
	s.tombstones = saved.Tombstones
	for i := range s.tombstones {
		s.tombstones[i].Until = instant(int64(s.tombstones[i].Until))
	}
	return nil
}

func (r *savedRequest) request(name string) driver.Request {
	return driver.Request{
		Name: name, Owner: r.Owner, Mode: r.Mode, Slots: r.Slots, Permits: r.Permits,
		TTL: duration(r.TTL), LockDelay: duration(r.Delay), MinHold: duration(r.MinHold), Note: r.Note,
	}
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
	saved := savedRecord{Tombstones: slices.Clone(s.tombstones)}
	for i := range s.Holds {
		h := &s.Holds[i]
		to := savedHold{
			savedRequest: save(&h.Request, h.Client),
			Closed:       h.Closed, Token: h.Token, Taken: serverTime(h.Taken), Expires: serverTime(h.Expires),
		}
		if h.Last > h.Token {
			to.Last = h.Last
		}
		if h.Claim {
			to.Asked, to.Claim = h.Since, micros(h.Valid)
		}
		saved.Holds = append(saved.Holds, to)
	}
	for i := range saved.Tombstones {
		saved.Tombstones[i].Until = driver.Instant(serverTime(saved.Tombstones[i].Until))
	}
	return marshal(saved)
}

func marshal(saved any) string {
	text, err := json.Marshal(saved)
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return string(text)
}

func save(r *driver.Request, client string) savedRequest {
	return savedRequest{
		Owner: r.Owner, Client: client, Mode: r.Mode, Slots: r.Slots, Permits: r.Permits,
		TTL: micros(r.TTL), Delay: micros(r.LockDelay), MinHold: micros(r.MinHold), Note: r.Note,
	}
}

// decode returns the place that a row describes.
func (p *placeRow) decode(name string) (record.Place, error) {
	var saved savedRequest
	if err := json.Unmarshal([]byte(p.Request), &saved); err != nil {
		return record.Place{}, fmt.Errorf("a place in the queue of %.40q cannot be read: %w", name, err)
	}
	saved.Owner = p.Owner
	req := saved.request(name)
	req.Tokens = int(min(max(p.Tokens, 1), tokenBlock))
	return record.Place{
		Request: req, Client: saved.Client, Joined: instant(p.Joined), Until: instant(p.Ends), Asked: driver.Instant(p.Asked),
	}, nil
}

// placeOf returns the row of a place.
func placeOf(p *record.Place) placeRow {
	return placeRow{
		Owner: p.Owner, Tokens: int64(p.Tokens), Joined: serverTime(p.Joined), Asked: int64(p.Asked), Ends: serverTime(p.Until),
		Request: requestText(&p.Request, p.Client),
	}
}

// requestText is the column request.
func requestText(req *driver.Request, client string) string {
	saved := save(req, client)
	saved.Owner = ""
	return marshal(saved)
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
