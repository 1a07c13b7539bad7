package sqllock

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// row is a row of {locks} without its name. Version 0: the name has no row.
type row struct {
	version, token int64
	owner, client  string
	ttl, delay     int64
	note           string
	taken, expires int64
	record         string
}

// fields are the row's columns in their order.
func (r *row) fields() []any {
	return []any{&r.version, &r.token, &r.owner, &r.client, &r.ttl, &r.delay, &r.note, &r.taken, &r.expires, &r.record}
}

// state is what a row says: the record of package record, the last token, and tombstones.
type state struct {
	record.Record
	last       driver.Token // that was given out or reserved
	tombstones []tombstone
}

// tombstone says what to answer an owner that comes back: that its hold was broken, or that
// its request was withdrawn and must not take effect (P6).
type tombstone struct {
	Owner  string         `json:"o"`
	Broken bool           `json:"b,omitempty"`
	Until  driver.Instant `json:"u"`
}

// The JSON of the column record. Instants of the server are microseconds, as in the other
// columns; Asked is by the owner's own clock, in nanoseconds.
type (
	savedRecord struct {
		Holds      []savedHold  `json:"holds,omitempty"`
		Queue      []savedPlace `json:"queue,omitempty"`
		Tombstones []tombstone  `json:"gone,omitempty"`
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
		// Claim is for how long, from Asked, a hold is valid that was handed over and
		// not yet renewed.
		Claim int64 `json:"v,omitempty"`
	}
	savedPlace struct {
		savedRequest
		Joined int64 `json:"j"`
		Until int64 `json:"z"`
		Tokens int   `json:"b,omitempty"` // 0: its client is of a version that asks for one
	}
)

// micros returns a duration in microseconds, rounded up: the server never keeps a
// hold for less than its holder trusts it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// instant makes an instant of the server's time. No clock of this host shows it.
func instant(us int64) driver.Instant { return driver.Instant(us * 1000) }

func serverTime(i driver.Instant) int64 { return micros(time.Duration(i)) }

// decode returns the state that a row describes.
func (r *row) decode(name string) (*state, error) {
	s := &state{last: driver.Token(r.token)}
	switch {
	case r.record != "":
		return s, s.parse(name, r.record)
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
	for i := range saved.Queue {
		p := &saved.Queue[i]
		req := p.request(name)
		req.Tokens = p.Tokens
		s.Queue = append(s.Queue, record.Place{
			Request: req, Client: p.Client, Joined: instant(p.Joined), Until: instant(p.Until), Asked: p.Asked,
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
		r.record = s.text()
	}
	return r
}

// plain reports whether the columns can hold all of the state: at most one hold, exclusive,
// without a minimum and with one token, for which nobody waits. A claim must be readable in
// the record where its winner is not notified.
func (s *state) plain() bool {
	if len(s.Queue) > 0 || len(s.tombstones) > 0 || len(s.Holds) > 1 {
		return false
	}
	if len(s.Holds) == 0 {
		return true
	}
	h := &s.Holds[0]
	return h.Mode == driver.Exclusive && h.MinHold == 0 && !h.Closed && h.Token == s.last && (!h.Claim || h.Client != "")
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
	for i := range s.Queue {
		p := &s.Queue[i]
		to := savedPlace{
			savedRequest: save(&p.Request, p.Client),
			Joined:       serverTime(p.Joined), Until: serverTime(p.Until), Tokens: p.Tokens,
		}
		to.Asked = p.Asked
		saved.Queue = append(saved.Queue, to)
	}
	for i := range saved.Tombstones {
		saved.Tombstones[i].Until = driver.Instant(serverTime(saved.Tombstones[i].Until))
	}
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

// settle brings the state up to now.
func (s *state) settle(now driver.Instant, rules *record.Rules) {
	s.tombstones = slices.DeleteFunc(s.tombstones, func(f tombstone) bool { return now >= f.Until })
	rules.Least = max(s.last+tokenGap, driver.Token(serverTime(now)))
	s.Settle(now, rules)
}

// putTombstone puts up a tombstone, in place of one that its owner has already.
func (s *state) putTombstone(f tombstone) {
	for i := range s.tombstones {
		if s.tombstones[i].Owner == f.Owner {
			s.tombstones[i] = f
			return
		}
	}
	s.tombstones = append(s.tombstones, f)
}

// tombstoneOf returns the error that an owner's tombstone says, or nil if it has none.
func (s *state) tombstoneOf(owner string) error {
	for i := range s.tombstones {
		switch {
		case s.tombstones[i].Owner != owner:
		case s.tombstones[i].Broken:
			return driver.ErrBroken
		default:
			return driver.ErrNotHeld
		}
	}
	return nil
}
