package etcdlock

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

// value is what a lock's key has for a value: JSON, so that "etcdctl get" shows
// it to people. Other fields of the request the store need not know. What needs
// none of it but the note is plain in the layout Stock: the value is the note.
type value struct {
	Version    int    `json:"holdfast"` // of the format: layout.version
	Owner      string `json:"owner"`
	Mode       string `json:"mode"`
	Slots      int    `json:"slots,omitempty"`
	Permits    int    `json:"permits,omitempty"`
	Note       string `json:"note,omitempty"`
	Client     string `json:"client"`
	LockDelay  int64  `json:"lock_delay_ms,omitempty"`
	Asked      int64  `json:"asked_ms"`           // by the client's wall clock: for people only
	HandedOver int    `json:"passed,omitempty"`   // how often it was handed over in its process, as told last
	Closed     bool   `json:"closed,omitempty"`   // released before its minimum hold was over
	Until      int64  `json:"until_ms,omitempty"` // when it opens, by the same clock
}

func (l *layout) newValue(req *driver.Request, client string, asked int64) value {
	return value{
		Version: l.version, Owner: req.Owner, Mode: req.Mode.String(), Slots: req.Slots, Permits: req.Permits, Note: req.Note,
		Client: client, LockDelay: req.LockDelay.Milliseconds(), Asked: asked,
	}
}

func (v value) String() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v) // of strings and numbers: cannot fail
	return b.String()
}

// text returns the value of a request's key.
func (l *layout) text(v value) string {
	if l.stock && v.plain() {
		return v.Note
	}
	return v.String()
}

// plain reports whether the note alone says everything: as etcd's own programs
// have it, package concurrency's Election among them.
func (v *value) plain() bool {
	_, ours := parseValue([]byte(v.Note))
	return v.Mode == driver.Exclusive.String() && v.LockDelay == 0 && !v.Closed && !ours
}

// parseValue reads a value, and reports whether it is one, of any version.
func parseValue(text []byte) (v value, ok bool) {
	if len(text) > 0 && text[0] == '{' && json.Unmarshal(text, &v) == nil && v.Version > 0 {
		return v, true
	}
	return value{}, false
}

// entry is one key of a name: a hold, a place in its queue, or what closes it.
type entry struct {
	key     string
	created int64 // the revision of its creation: its place in the order
	mod     int64 // that of its last change
	lease   int64
	value   value
	mode    driver.Mode
	ours    bool // else it is of another program, and exclusive
}

// otherVersion returns an error if the entry is of a version of this package that has
// another format. An entry of which the key alone was read is not judged.
func (l *layout) otherVersion(e *entry) error {
	if v := e.value.Version; v != 0 && v != l.version {
		return fmt.Errorf("%w: a client with version %d of the format uses it, this one has version %d; "+
			"update all clients of the name, or give them a prefix of their own", driver.ErrMismatch, v, l.version)
	}
	return nil
}

// tokenOf returns the token on record of an entry that is a hold.
func (l *layout) tokenOf(e *entry) driver.Token {
	return l.token(e.created) + driver.Token(min(max(e.value.HandedOver, 0), l.block()-1))
}

func parseEntry(kv *mvccpb.KeyValue) entry {
	e := entry{key: string(kv.Key), created: kv.CreateRevision, mod: kv.ModRevision, lease: kv.Lease}
	if v, ok := parseValue(kv.Value); ok {
		for _, m := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Slot} {
			if m.String() == v.Mode {
				e.value, e.mode, e.ours = v, m, true
				return e
			}
		}
	}
	if utf8.Valid(kv.Value) {
		e.value.Note = string(kv.Value)
	}
	e.value.Client, e.ours = clientOf(e.key)
	return e
}

// parseEntries reads the keys of one name, in the order of their creation if
// that is how they come. What else is below dir is left out: see layout.isEntry.
func (l *layout) parseEntries(dir string, kvs []*mvccpb.KeyValue) []entry {
	entries := make([]entry, 0, len(kvs))
	for _, kv := range kvs {
		if l.isEntry(dir, string(kv.Key)) {
			entries = append(entries, parseEntry(kv))
		}
	}
	return entries
}

// use is how an entry or a request takes the name.
type use struct {
	mode           driver.Mode
	slots, permits int
}

func (e *entry) use() use           { return use{e.mode, e.value.Slots, e.value.Permits} }
func useOf(req *driver.Request) use { return use{req.Mode, req.Slots, req.Permits} }
func (u use) otherKind(v use) bool {
	return (u.mode == driver.Slot) != (v.mode == driver.Slot) || u.slots != v.slots
}
func (e *entry) delay() time.Duration { return time.Duration(e.value.LockDelay) * time.Millisecond }

// owner returns the entry's owner; where that is not known, the end of its key.
func (e *entry) owner() string {
	if e.value.Owner != "" {
		return e.value.Owner
	}
	return e.key[strings.LastIndexByte(e.key, '/')+1:]
}

// find returns the entry of an owner, or nil. Of a plain one the key says whose it
// is: no other owner gets it before it is gone for certain.
func find(entries []entry, owner, key string) *entry {
	for i := range entries {
		if e := &entries[i]; e.value.Owner == owner || e.value.Owner == "" && e.key == key && !e.value.Closed {
			return &entries[i]
		}
	}
	return nil
}

// age returns since when the entry is there, by the wall clocks of its client and
// of this host.
func (e *entry) age() time.Duration {
	if e.value.Asked == 0 {
		return 0
	}
	return max(time.Since(time.UnixMilli(e.value.Asked)), 0)
}

// closes returns for how much longer a closed entry is to stay, by the same clocks.
func (e *entry) closes() time.Duration {
	return max(time.Until(time.UnixMilli(e.value.Until)), 0)
}

// admits reports whether a request stands beside all of the entries before it.
// This one rule is exclusion and fairness: an entry that still waits is in the way
// just like one that holds (P1, P8), and an admitted entry stays admitted, because
// entries before it can only go.
func admits(before []entry, u use) bool {
	permits := u.permits
	for i := range before {
		b := before[i].use()
		switch {
		case b.otherKind(u):
			return false
		case u.mode == driver.Slot:
			permits += b.permits
		case u.mode == driver.Exclusive || b.mode == driver.Exclusive:
			return false
		}
	}
	return u.mode != driver.Slot || permits <= u.slots
}

// mismatch returns an error if the name is in use as another kind of lock (P10), or by a
// client of another version.
func (l *layout) mismatch(req *driver.Request, others []entry) error {
	for i := range others {
		if err := l.otherVersion(&others[i]); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(others, func(e entry) bool { return e.use().otherKind(useOf(req)) }) {
		return driver.ErrMismatch
	}
	return nil
}

// without takes the entry of that key out.
func without(entries []entry, key string) []entry {
	return slices.DeleteFunc(entries, func(e entry) bool { return e.key == key })
}
