package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// keys are what etcd has, for tests of the mirror.
type keys struct {
	rev   int64
	kvs   map[string]*mvccpb.KeyValue
	ended map[string]bool // sessions: none is opened again
}

func newKeys() *keys {
	return &keys{rev: 1, kvs: map[string]*mvccpb.KeyValue{}, ended: map[string]bool{}}
}

// put puts a key at the present revision, and returns the event.
func (k *keys) put(key, value string) *clientv3.Event {
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: k.rev, CreateRevision: k.rev}
	if was := k.kvs[key]; was != nil {
		kv.CreateRevision = was.CreateRevision
	}
	k.kvs[key] = kv
	return &clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv}
}

func (k *keys) delete(key string) *clientv3.Event {
	delete(k.kvs, key)
	return &clientv3.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: k.rev}}
}

// all returns all keys in their order.
func (k *keys) all() (kvs []*mvccpb.KeyValue) {
	for _, key := range slices.Sorted(maps.Keys(k.kvs)) {
		kvs = append(kvs, k.kvs[key])
	}
	return kvs
}

// shown describes what a mirror shows, but for what was told to whom.
func (m *mirror) shown() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	m.names.Ascend(func(n *name) bool {
		fmt.Fprintf(&b, "%s: %d hold", n.name, n.holders)
		for i, e := range n.entries {
			fmt.Fprintf(&b, "; %s since %d, a place %t, %s, holds %t", e.Key, e.Created, e.isPlace(), e.Mode, e.holds)
			if e.holds != (i < n.holders) || m.entries[e.Key] != e {
				b.WriteString(" WRONG")
			}
		}
		b.WriteString("\n")
		return true
	})
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		s := m.sessions[id]
		fmt.Fprintf(&b, "%s has %d, of which %d are places, over %t\n", id, len(s.entries), s.places, s.over)
	}
	for _, key := range slices.Sorted(maps.Keys(m.tombstones)) {
		fmt.Fprintf(&b, "tombstone %s, broken %t\n", key, m.tombstones[key].broken)
	}
	closed := m.usageLocked("p")["locks"]
	for _, e := range m.entries {
		if e.session != nil && e.session.record.Principal == "p" {
			closed-- // it counts as well
		}
	}
	fmt.Fprintf(&b, "%d entries, %d close names and %d count\n", len(m.entries), len(m.closed), closed)
	return b.String()
}

// TestCursors: events are told until the client has said that it knows them, and all is told to a client
// whose cursor is of another stream.
func TestCursors(t *testing.T) {
	s := &session{entries: map[*entry]bool{}}
	st := s.streamLocked()
	told := func(cursor string) *cellv1.KeepAliveResponse {
		r := &cellv1.KeepAliveResponse{}
		st.fillLocked(s, 5, cursor, r)
		return r
	}
	numbers := func(r *cellv1.KeepAliveResponse) (all []uint64) {
		for _, e := range r.Events {
			all = append(all, e.Number)
		}
		return all
	}
	first := told("")
	if !first.Complete || first.Revision != 5 {
		t.Fatalf("a client without a cursor is told %v", first)
	}
	for range 3 {
		st.addLocked(&cellv1.Event{})
	}
	one := told(first.Cursor)
	if one.Complete || !slices.Equal(numbers(one), []uint64{1, 2, 3}) {
		t.Errorf("three events are told as %v", one)
	}
	st.addLocked(&cellv1.Event{})
	if again := told(first.Cursor); !slices.Equal(numbers(again), []uint64{1, 2, 3, 4}) {
		t.Errorf("events whose answer was lost are told as %v", again)
	}
	if more := told(one.Cursor); !slices.Equal(numbers(more), []uint64{4}) {
		t.Errorf("after three of four are known, told is %v", more)
	}
	for _, cursor := range []string{"", "x", "x:1", st.id + ":", st.id + ":zzz", st.id + ":-1", first.Cursor + "0"} {
		st.addLocked(&cellv1.Event{})
		if r := told(cursor); !r.Complete || len(r.Events) > 0 {
			t.Errorf("a client with the cursor %q is told %v", cursor, r)
		}
	}
	last := st.cursorLocked()
	for range maxEvents + 1 {
		st.addLocked(&cellv1.Event{})
	}
	if len(st.events) > maxEvents {
		t.Errorf("P9: %d events wait for one client", len(st.events))
	}
	if r := told(last); !r.Complete {
		t.Error("a client that has missed events is not told all")
	}
}
