package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// layout is where locks stand in the cell's etcd.
var layout = func() *table.Layout {
	l, err := table.NewLayout(table.Escaped, table.DefaultPrefix)
	if err != nil {
		panic(err) // both are constants
	}
	return &l
}()

func (e *entry) tokenOf() driver.Token { return layout.TokenOf(&e.Entry) }

// mirror is what etcd has, as far as this member has heard of it: a watch of all keys keeps it up to
// date. It may be behind, but shows nothing that was not. So a hold that it shows is one, for the
// keys before a hold can only go. That a name is held or free, or that a key is gone, is certain only
// for those who have waited until the mirror had reached a revision of which they know (reach).
type mirror struct {
	clock driver.Clock
	guard *guard

	mu         sync.Mutex
	rev        int64
	loaded     driver.Instant // when all was read; what was there then may be older
	waits      []revisionWait
	names      *btree.BTreeG[*name]
	entries    map[string]*entry    // by key
	sessions   map[string]*session  // by id
	ended      map[string]*session  // that are over, and may have something left
	closed     map[*entry]bool      // what closes names
	tombstones map[string]tombstone // by key
	nodes      *btree.BTreeG[*node]
	watchers   map[string]map[*session]kinds // of nodes, by path
	usages     map[string]usage              // by principal
	alive      map[string]sighting           // of members, by their processes
}

// revisionWait is somebody who waits for a revision.
type revisionWait struct {
	rev     int64
	reached chan struct{}
}

func newMirror(clock driver.Clock, g *guard) *mirror {
	m := &mirror{clock: clock, guard: g}
	m.clear()
	return m
}

func (m *mirror) clear() {
	m.names = btree.NewG(16, func(a, b *name) bool { return a.name < b.name })
	m.nodes = btree.NewG(16, func(a, b *node) bool { return a.path < b.path })
	m.usages, m.alive = map[string]usage{}, map[string]sighting{}
	m.watchers, m.closed = map[string]map[*session]kinds{}, map[*entry]bool{}
	m.entries, m.tombstones = map[string]*entry{}, map[string]tombstone{}
	m.sessions, m.ended = map[string]*session{}, map[string]*session{}
}

// reach waits until the mirror has come to a revision.
func (m *mirror) reach(ctx context.Context, rev int64) error {
	m.mu.Lock()
	if m.rev >= rev {
		m.mu.Unlock()
		return nil
	}
	w := revisionWait{rev, make(chan struct{})}
	m.waits = append(m.waits, w)
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load replaces all that the mirror has by what etcd had at a revision. What has happened in between
// is not known, so parked calls tell their clients all that they have.
func (m *mirror) load(kvs []*mvccpb.KeyValue, rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.gone = true
		e.answerLocked()
	}
	before := m.sessions
	m.clear()
	touched := map[*name]bool{}
	for _, kv := range kvs { // what they have comes before them in the order of keys
		if id, ok := strings.CutPrefix(string(kv.Key), sessionsAt); ok {
			m.putSessionLocked(id, kv.Value, before[id]) // calls have that already
		}
	}
	for _, kv := range kvs {
		m.putLocked(kv, touched)
	}
	for id, s := range before {
		if m.sessions[id] == nil {
			s.endLocked()
		} else if s.stream != nil {
			s.stream.restartLocked()
		}
	}
	m.advanceLocked(touched, rev)
	m.loaded = m.clock.Now()
}

// apply takes in what has happened, revision by revision.
func (m *mirror) apply(events []*clientv3.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	touched := map[*name]bool{}
	for i, e := range events {
		if e.Type == clientv3.EventTypeDelete {
			m.deleteLocked(e.Kv, touched)
		} else {
			m.putLocked(e.Kv, touched)
		}
		if rev := e.Kv.ModRevision; i+1 == len(events) || events[i+1].Kv.ModRevision != rev {
			m.advanceLocked(touched, rev)
			clear(touched)
		}
	}
}

// advanceLocked comes to a revision, which has touched names, and wakes those who wait for it.
func (m *mirror) advanceLocked(touched map[*name]bool, rev int64) {
	for n := range touched {
		m.settleLocked(n, rev)
	}
	m.rev = max(m.rev, rev)
	m.waits = slices.DeleteFunc(m.waits, func(w revisionWait) bool {
		if w.rev <= m.rev {
			close(w.reached)
		}
		return w.rev <= m.rev
	})
}

func (m *mirror) putLocked(kv *mvccpb.KeyValue, touched map[*name]bool) {
	switch key := string(kv.Key); {
	case strings.HasPrefix(key, layout.LocksAt):
		m.putEntryLocked(kv, touched)
	case strings.HasPrefix(key, sessionsAt):
		m.putSessionLocked(strings.TrimPrefix(key, sessionsAt), kv.Value, nil)
	case strings.HasPrefix(key, homesAt):
		m.putHomeLocked(strings.TrimPrefix(key, homesAt), kv.Value, kv.ModRevision)
	case strings.HasPrefix(key, aliveAt):
		m.alive[strings.TrimPrefix(key, aliveAt)] = sighting{kv.ModRevision, m.clock.Now()}
	case strings.HasPrefix(key, nodesAt), strings.HasPrefix(key, contentsAt):
		m.putNodeLocked(kv)
	case strings.HasPrefix(key, watchesAt):
		m.putWatchLocked(key, kv.Value)
	case strings.HasPrefix(key, layout.TombstonesAt):
		m.tombstones[key] = tombstone{sighting{kv.ModRevision, m.clock.Now()}, string(kv.Value) == brokenText}
	}
}

func (m *mirror) deleteLocked(kv *mvccpb.KeyValue, touched map[*name]bool) {
	switch key := string(kv.Key); {
	case strings.HasPrefix(key, layout.LocksAt):
		if e := m.entries[key]; e != nil {
			m.removeEntryLocked(e)
			touched[e.at] = true
		}
	case strings.HasPrefix(key, sessionsAt):
		m.deleteSessionLocked(strings.TrimPrefix(key, sessionsAt))
	case strings.HasPrefix(key, aliveAt):
		m.alive[strings.TrimPrefix(key, aliveAt)] = sighting{0, m.clock.Now()}
	case strings.HasPrefix(key, nodesAt): // its contents go with it
		m.deleteNodeLocked(strings.TrimPrefix(key, nodesAt), kv.ModRevision)
	case strings.HasPrefix(key, watchesAt):
		m.deleteWatchLocked(key)
	default:
		delete(m.tombstones, key)
	}
}

// nameLocked returns a name, or nil if nobody uses it.
func (m *mirror) nameLocked(text string) *name {
	n, _ := m.names.Get(&name{name: text})
	return n
}

// putEntryLocked takes in a key of a name, which is new or has changed.
func (m *mirror) putEntryLocked(kv *mvccpb.KeyValue, touched map[*name]bool) {
	parsed := table.ParseEntry(kv)
	text, _, ok := layout.Split(parsed.Key, parsed.Lease, parsed.Ours)
	if !ok {
		return
	}
	if e := m.entries[parsed.Key]; e != nil {
		touched[e.at] = true
		if e.Created == parsed.Created && !parsed.Value.Closed {
			wasPlace := e.isPlace()
			if e.Entry = parsed; wasPlace && !e.isPlace() {
				e.session.places--
				e.session.tellLocked(e)
			}
			return
		}
		m.removeEntryLocked(e) // it was deleted and put again, or closes its name from now on
	}
	n := m.nameLocked(text)
	if n == nil {
		n = &name{name: text}
		m.names.ReplaceOrInsert(n)
	}
	e := &entry{Entry: parsed, at: n, since: m.clock.Now()}
	at := len(n.entries)
	for at > 0 && n.entries[at-1].Created > e.Created {
		at--
	}
	n.entries = slices.Insert(n.entries, at, e)
	m.entries[e.Key] = e
	if e.Value.Closed {
		m.closed[e] = true
		m.usageLocked(e.Value.Principal)["locks"]++ // it counts for the principal whose hold it was
	} else {
		id, _ := table.ClientOf(e.Key)
		e.session = m.ownerLocked(id)
		e.session.addLocked(e)
	}
	touched[n] = true
}

func (m *mirror) removeEntryLocked(e *entry) {
	delete(m.entries, e.Key)
	e.at.entries = slices.DeleteFunc(e.at.entries, func(other *entry) bool { return other == e })
	e.gone = true
	e.answerLocked()
	if e.Value.Closed {
		delete(m.closed, e)
		m.usageLocked(e.Value.Principal)["locks"]--
		return
	}
	m.tellLockLocked(e, cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_LOST, e.holds)
	e.session.removeLocked(e, m.whyLocked(e.at.name, e.Value.Owner))
}

// whyLocked says why a request has nothing.
func (m *mirror) whyLocked(name, owner string) cellv1.Reason {
	if m.tombstones[tombstoneOf(name, owner)].broken {
		return cellv1.Reason_REASON_BROKEN
	}
	return cellv1.Reason_REASON_NOT_HELD
}

// settleLocked finds out who holds a name that has changed, and tells those that do now.
func (m *mirror) settleLocked(n *name, rev int64) {
	if len(n.entries) == 0 {
		m.names.Delete(n)
		return
	}
	var admission table.Admission
	n.holders = 0
	for n.holders < len(n.entries) && admission.Admit(n.entries[n.holders].Use()) {
		n.holders++
	}
	for _, e := range n.entries[:n.holders] {
		if !e.holds {
			e.holds, e.since = true, m.clock.Now()
			e.answerLocked()
			m.tellLockLocked(e, cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_ACQUIRED, true)
			if e.session != nil && e.isPlace() {
				e.session.tellLocked(e)
			}
		}
	}
	if last := n.entries[len(n.entries)-1]; last.Created == rev && !last.holds {
		m.tellLockLocked(last, cellv1.NodeEventKind_NODE_EVENT_KIND_LOCK_WANTED, true)
	}
}

// tellLockLocked tells those who watch the node of a lock what has happened to it.
func (m *mirror) tellLockLocked(e *entry, kind cellv1.NodeEventKind, happened bool) {
	if !happened || e.Value.Closed || len(m.watchers[e.at.name]) == 0 {
		return
	}
	event := &cellv1.NodeEvent{Revision: e.Created}
	if e.holds {
		event.Token = int64(e.tokenOf())
	}
	m.tellWatchersLocked(e.at.name, kind, event)
}

// follow keeps the mirror up to date until the member stops: it reads all, and watches from there on.
// If the watch ends, because this member was cut off for so long that etcd has forgotten what it
// missed, it begins anew.
func (f *front) follow(watcher clientv3.Watcher) {
	for f.life.Err() == nil {
		rev, err := f.loadMirror()
		if err == nil {
			err = f.watch(watcher, rev)
		}
		if f.life.Err() == nil {
			f.log.Warn("what the cell has is read anew", "error", err)
			time.Sleep(retryEvery)
		}
	}
}

// loadMirror reads all keys as they are at one revision.
func (f *front) loadMirror() (rev int64, err error) {
	all, err := f.store.Range(f.life, &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		return 0, err
	}
	f.mirror.load(all.Kvs, all.Header.Revision)
	return all.Header.Revision, nil
}

// watch takes in what happens after a revision. Each revision changes a key, so the last event tells
// how far the mirror has come.
func (f *front) watch(watcher clientv3.Watcher, rev int64) error {
	ctx, cancel := context.WithCancel(f.life)
	defer cancel()
	for resp := range watcher.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		f.mirror.apply(resp.Events)
	}
	return ctx.Err()
}
