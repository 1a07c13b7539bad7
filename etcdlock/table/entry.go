package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfastlock/holdfast/driver"
)

// Value is what a lock's key has for a value: JSON, so that "etcdctl get" shows
// it to people. Other fields of the request the store need not know. What needs
// none of it but the note is plain in the layout Stock: the value is the note.
type Value struct {
	Version    int    `json:"holdfast"` // of the format: layout.version
	Owner      string `json:"owner"`
	Mode       string `json:"mode"`
	Slots      int    `json:"slots,omitempty"`
	Permits    int    `json:"permits,omitempty"`
	Note       string `json:"note,omitempty"`
	Client     string `json:"client"`
	LockDelay  int64  `json:"lock_delay_ms,omitempty"`
	Asked      int64  `json:"asked_ms"`              // by the client's wall clock: for people only
	HandedOver int    `json:"passed,omitempty"`      // how often it was handed over in its process, as told last
	Closed     bool   `json:"closed,omitempty"`      // released before its minimum hold was over
	Until      int64  `json:"until_ms,omitempty"`    // when it opens, by the same clock
	MinHold    int64  `json:"min_hold_ms,omitempty"` // of a hold: from the grant on; of a closed entry of a cell: since it is closed
	Principal  string `json:"principal,omitempty"`   // of a closed entry: whose it is where clients have principals
}

// NewValue returns the value of a request's key. Asked is when it was asked for, by the wall clock of
// who asks, in milliseconds.
func (l *Layout) NewValue(req *driver.Request, client string, asked int64) Value {
	return Value{
		Version: l.Version, Owner: req.Owner, Mode: req.Mode.String(), Slots: req.Slots, Permits: req.Permits, Note: req.Note,
		Client: client, LockDelay: req.LockDelay.Milliseconds(), Asked: asked,
	}
}

// String returns the value as JSON.
func (v Value) String() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v) // of strings and numbers: cannot fail
	return b.String()
}

// Text returns the value of a request's key.
func (l *Layout) Text(v Value) string {
	if l.Stock && v.plain() {
		return v.Note
	}
	return v.String()
}

// plain reports whether the note alone says everything: as etcd's own programs
// have it, package concurrency's Election among them.
func (v *Value) plain() bool {
	_, ours := ParseValue([]byte(v.Note))
	return v.Mode == driver.Exclusive.String() && v.LockDelay == 0 && !v.Closed && !ours
}

// ParseValue reads a value, and reports whether it is one, of any version.
func ParseValue(text []byte) (v Value, ok bool) {
	if len(text) > 0 && text[0] == '{' && json.Unmarshal(text, &v) == nil && v.Version > 0 {
		return v, true
	}
	return Value{}, false
}

// Entry is one key of a name: a hold, a place in its queue, or what closes it.
type Entry struct {
	Key     string
	Created int64 // the revision of its creation: its place in the order
	Mod     int64 // that of its last change
	Lease   int64
	Value   Value
	Mode    driver.Mode
	Ours    bool // else it is of another program, and exclusive
}

// TokenOf returns the token on record of an entry that is a hold.
func (l *Layout) TokenOf(e *Entry) driver.Token {
	return l.Token(e.Created) + driver.Token(min(max(e.Value.HandedOver, 0), l.Block()-1))
}

// ParseEntry reads a key.
func ParseEntry(kv *mvccpb.KeyValue) Entry {
	e := Entry{Key: string(kv.Key), Created: kv.CreateRevision, Mod: kv.ModRevision, Lease: kv.Lease}
	if v, ok := ParseValue(kv.Value); ok {
		for _, m := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Slot} {
			if m.String() == v.Mode {
				e.Value, e.Mode, e.Ours = v, m, true
				return e
			}
		}
	}
	if utf8.Valid(kv.Value) {
		e.Value.Note = string(kv.Value)
	}
	e.Value.Client, e.Ours = ClientOf(e.Key)
	return e
}

// ParseEntries reads the keys of one name, in the order of their creation if
// that is how they come. What else is below dir is left out: see layout.isEntry.
func (l *Layout) ParseEntries(dir string, kvs []*mvccpb.KeyValue) []Entry {
	entries := make([]Entry, 0, len(kvs))
	for _, kv := range kvs {
		if l.IsEntry(dir, string(kv.Key)) {
			entries = append(entries, ParseEntry(kv))
		}
	}
	return entries
}

// Use is how an entry or a request takes the name.
type Use struct {
	Mode           driver.Mode
	Slots, Permits int
}

// Use returns how the entry takes the name.
func (e *Entry) Use() Use { return Use{e.Mode, e.Value.Slots, e.Value.Permits} }

// UseOf returns how a request takes the name.
func UseOf(req *driver.Request) Use { return Use{req.Mode, req.Slots, req.Permits} }

func (u Use) otherKind(v Use) bool {
	return (u.Mode == driver.Slot) != (v.Mode == driver.Slot) || u.Slots != v.Slots
}

// Delay returns the lock-delay.
func (e *Entry) Delay() time.Duration { return time.Duration(e.Value.LockDelay) * time.Millisecond }

// Owner returns the entry's owner; where that is not known, the end of its key.
func (e *Entry) Owner() string {
	if e.Value.Owner != "" {
		return e.Value.Owner
	}
	return e.Key[strings.LastIndexByte(e.Key, '/')+1:]
}

// Find returns the entry of an owner, or nil. Of a plain one the key says whose it
// is: no other owner gets it before it is gone for certain.
func Find(entries []Entry, owner, key string) *Entry {
	for i := range entries {
		if e := &entries[i]; e.Value.Owner == owner || e.Value.Owner == "" && e.Key == key && !e.Value.Closed {
			return &entries[i]
		}
	}
	return nil
}

// Age returns since when the entry is there, by the wall clocks of its client and of this host.
func (e *Entry) Age() time.Duration {
	if e.Value.Asked == 0 {
		return 0
	}
	return max(time.Since(time.UnixMilli(e.Value.Asked)), 0)
}

// ClosesIn returns for how much longer a closed entry is to stay, by the same clocks.
func (e *Entry) ClosesIn() time.Duration {
	return max(time.Until(time.UnixMilli(e.Value.Until)), 0)
}

// Admits reports whether a request stands beside all of the entries before it. This one rule is exclusion and
// fairness: an entry that still waits is in the way just like one that holds (P1, P8), and an admitted entry stays
// admitted, because entries before it can only go.
func Admits(before []Entry, u Use) bool {
	var a Admission
	for i := range before {
		if !a.Admit(before[i].Use()) {
			return false
		}
	}
	return a.Admit(u)
}

// Mismatch returns an error if the name is in use as another kind of lock (P10), or by a client whose version of this
// package has another format. An entry of which the key alone was read is not judged.
func (l *Layout) Mismatch(req *driver.Request, others []Entry) error {
	for i := range others {
		if v := others[i].Value.Version; v != 0 && v != l.Version {
			return fmt.Errorf("%w: a client with version %d of the format uses it, this one has version %d; "+
				"update all clients of the name, or give them a prefix of their own", driver.ErrMismatch, v, l.Version)
		}
	}
	if slices.ContainsFunc(others, func(e Entry) bool { return e.Use().otherKind(UseOf(req)) }) {
		return driver.ErrMismatch
	}
	return nil
}

// Without takes the entry of that key out.
func Without(entries []Entry, key string) []Entry {
	return slices.DeleteFunc(entries, func(e Entry) bool { return e.Key == key })
}

// Holders returns how many of the entries of a name, from the first, hold it: those that all
// entries before them admit. Behind one that is not admitted none is.
func Holders(entries []Entry) int {
	var a Admission
	for i := range entries {
		if !a.Admit(entries[i].Use()) {
			return i
		}
	}
	return len(entries)
}

// Admission admits the entries of a name in their order. The zero value has admitted none.
type Admission struct {
	first   Use
	n       int
	permits int
}

// Admit admits the next entry if all before it do. Once it has refused one it must not be used any more.
func (a *Admission) Admit(u Use) bool {
	switch {
	case a.n == 0:
		a.first = u
	case u.otherKind(a.first), u.Mode != driver.Slot && (u.Mode == driver.Exclusive || a.first.Mode == driver.Exclusive):
		return false
	}
	a.n++
	a.permits += u.Permits
	return u.Mode != driver.Slot || a.permits <= u.Slots
}
