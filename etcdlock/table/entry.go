package table

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfastlock/holdfast/driver"
)

// Value is what a lock's key has for a value: JSON, so that "etcdctl get" shows
// it to people. Other fields of the request the store need not know. What needs
// none of it but the note is plain in the layout Stock: the value is the note.
type Value struct {
	Version    int    `json:"holdfast"` // of the format: Layout.Version
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
	Place      bool   `json:"place,omitempty"`       // in a cell: its client has not begun to use it
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
// that is how they come. What else is below dir is left out: see IsEntry.
func (l *Layout) ParseEntries(dir string, kvs []*mvccpb.KeyValue) []Entry {
	entries := make([]Entry, 0, len(kvs))
	for _, kv := range kvs {
		if l.IsEntry(dir, string(kv.Key)) {
			entries = append(entries, ParseEntry(kv))
		}
	}
	return entries
}

// IsEntry reports whether a key below dir is a hold of dir's name or a place in its
// queue. In the layout Stock there are those of longer names too.
func (l *Layout) IsEntry(dir, key string) bool {
	if strings.Contains(key[len(dir):], "/") {
		return false
	}
	_, ours := ClientOf(key)
	return ours || l.Stock
}

// ClientOf returns the client whose key it is, and whether it can be one of this
// package: etcd's own end with the number of a lease.
func ClientOf(key string) (client string, ok bool) {
	client, n, ok := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], ".")
	if _, err := strconv.ParseUint(n, 10, 32); !ok || err != nil || len(client) != ClientLen {
		return "", false
	}
	return client, true
}

// ClientLen is the length of a client's name.
const ClientLen = 16

// Split returns the name of a lock's key, and its end. Ours says that the value is of this package; in the layout
// Stock there may be keys of all kinds, of which only those of a lease can be locks.
func (l *Layout) Split(key string, lease int64, ours bool) (name, end string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.LocksAt)
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return "", "", false
	}
	name, end = rest[:i], rest[i+1:]
	if l.Stock {
		ok = ours || lease != 0 && end == strconv.FormatInt(lease, 16)
	} else {
		ok = l.IsEntry(l.LocksAt+name+"/", key) && !strings.Contains(name, "/")
		name = unescaper.Replace(name)
	}
	return name, end, ok && driver.CheckName(name) == nil
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
	if i := slices.IndexFunc(others, func(e Entry) bool { return e.Use().otherKind(UseOf(req)) }); i >= 0 {
		return driver.Mismatch(others[i].Value.Slots, req.Slots)
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

// readInUse makes sense of what was read of a name: all its keys, or a few of many, and perhaps some again with their
// values. The entries are in the order of their creation.
func (l *Layout) readInUse(req *driver.Request, read []*etcdserverpb.ResponseOp) (in []Entry, keys *etcdserverpb.RangeResponse) {
	dir := l.Dir(req.Name)
	keys = read[0].GetResponseRange()
	in = l.ParseEntries(dir, keys.Kvs)
	slices.SortFunc(in, func(a, b Entry) int { return cmp.Compare(a.Created, b.Created) })
	for _, some := range read[1:] {
		for _, e := range l.ParseEntries(dir, some.GetResponseRange().GetKvs()) {
			if i := slices.IndexFunc(in, func(known Entry) bool { return known.Key == e.Key }); i >= 0 {
				in[i] = e
			}
		}
	}
	return in, keys
}

// NotTaken returns why a Take put nothing: an error, or the key that the owner has already. If it returns neither, a key
// came after the revision seen, and nothing is in the way: the request asks again.
func (l *Layout) NotTaken(req *driver.Request, key string, seen int64, resp *etcdserverpb.TxnResponse) (own *Entry, err error) {
	in, keys := l.readInUse(req, resp.Responses)
	if !keys.More && !slices.ContainsFunc(keys.Kvs, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision > seen }) {
		return nil, driver.ErrNotHeld // nothing is newer: it was withdrawn before it arrived
	}
	if own = Find(in, req.Owner, key); own != nil && own.Key != key { // it is of another client
		return nil, l.HeldError(req, []Entry{*own})
	} else if own != nil {
		return own, nil
	}
	// Another version's shared hold or slot would admit this one.
	if err := l.Mismatch(req, in); err != nil {
		return nil, err
	}
	switch {
	case keys.More: // of a few of many none is known to be the holder
		return nil, &driver.HeldError{Name: req.Name, Queued: int(keys.Count) - 1}
	case Admits(in, UseOf(req)):
		return nil, nil
	}
	return nil, l.HeldError(req, in)
}

// NotPlaced returns why a Place put nothing: an error, or the key that the owner has already.
func (l *Layout) NotPlaced(req *driver.Request, key string, resp *etcdserverpb.TxnResponse) (own *Entry, err error) {
	entries := l.ParseEntries(l.Dir(req.Name), resp.Responses[0].GetResponseRange().Kvs)
	if own = Find(entries, req.Owner, key); own != nil {
		return own, nil
	}
	if len(entries) > 0 {
		return nil, errors.New("etcd still has the key of a hold that has ended")
	}
	return nil, driver.ErrNotHeld // it was withdrawn before it arrived
}

// Placed returns what is before a place that was taken just now, with all the entries that are known, and an error if the
// place is no use (P10). If there are more than were read, the nearest are not known yet.
func (l *Layout) Placed(req *driver.Request, resp *etcdserverpb.TxnResponse) (v View, others []Entry, err error) {
	others, keys := l.readInUse(req, resp.Responses)
	v = View{Rev: resp.Header.Revision, Entries: slices.Clone(others), More: keys.More, Ahead: len(others)}
	if keys.More {
		v.Entries, v.Ahead = nil, int(keys.Count)
	} else if far := len(v.Entries) - Nearby; req.Mode == driver.Exclusive && far > 0 {
		v.Entries, v.More = v.Entries[far:], true
	}
	return v, others, l.Mismatch(req, others)
}

// HeldError returns ErrHeld with what is known of the first entry in the way.
func (l *Layout) HeldError(req *driver.Request, others []Entry) *driver.HeldError {
	e := &driver.HeldError{Name: req.Name}
	if len(others) > 0 {
		e.Note, e.Token = others[0].Value.Note, l.TokenOf(&others[0])
	}
	return e
}

// View is what was before a place at some revision of the store. Later it can only be less: a later entry is behind.
type View struct {
	Rev     int64
	Entries []Entry // in the order of their creation
	More    bool    // there were others before these, or may have been
	Behind  bool    // others were behind it; of many before it that is not known
	Ahead   int     // at most so many were before it; 0: not known
}

// Free reports whether nothing is in the way.
func (v *View) Free(req *driver.Request) bool { return !v.More && Admits(v.Entries, UseOf(req)) }

// Nearby is how many entries an exclusive request looks at. With more before it
// it need not know them all: it watches the last ones only.
const Nearby = 2

// Still returns the view after the transaction of that name has succeeded.
func (v View) Still(resp *etcdserverpb.TxnResponse) View {
	if len(resp.Responses) > 0 {
		v.Behind = resp.Responses[0].GetResponseRange().GetCount() > int64(len(v.Entries)+1)
	}
	v.Rev = max(v.Rev, resp.Header.Revision)
	return v
}

// Before makes a view of what GetBefore has read, for the entry of that key. It reports whether
// the entry itself is there.
func (l *Layout) Before(req *driver.Request, key string, created int64, r *etcdserverpb.RangeResponse) (v View, own bool) {
	own = slices.ContainsFunc(r.Kvs, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == created && string(kv.Key) == key })
	v = View{Rev: r.Header.Revision, Entries: Without(l.ParseEntries(l.Dir(req.Name), r.Kvs), key)}
	// The count has all keys of the name, those behind the place too.
	v.Behind = !l.Stock && !r.More && r.Count > int64(len(r.Kvs))
	v.Ahead = len(v.Entries)
	if req.Mode != driver.Exclusive {
		return v, own
	}
	if r.More {
		v.Ahead = int(r.Count) - 1
	}
	// What is no entry, and stands in the place of entries, is taken for some.
	if v.More = len(v.Entries) > Nearby || r.More && len(v.Entries) < len(r.Kvs)-1; len(v.Entries) > Nearby {
		v.Entries = v.Entries[:Nearby]
	}
	slices.Reverse(v.Entries)
	return v, own
}
