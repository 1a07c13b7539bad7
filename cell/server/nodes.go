package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// Where nodes stand in etcd. A node has a key that says who may do what, and one with its contents; both
// are put together. So each of its numbers is a revision of one of them.
const (
	nodesAt    = "holdfast/node/"
	contentsAt = "holdfast/contents/"
	watchesAt  = "holdfast/watch/" // SESSION/PATH: what to tell a session of a node
)

// node is a node as the mirror has it. The mirror's mutex guards it.
type node struct {
	path       string
	instance   int64 // the revision at which it was made
	aclAt      int64 // of the last change of its rights
	contentsAt int64 // of the last write of its contents
	acl        acl
	size       int
	checksum   string
	list       map[string]bool // of principals, if it is below listsAt
}

// acl names who may do what with a node: see cellv1.ACL.
type acl struct {
	Read   string `json:"read,omitempty"`
	Write  string `json:"write,omitempty"`
	Change string `json:"change,omitempty"`
	By     string `json:"by,omitempty"` // the principal that has made the node
	// Session is the id of the session that an ephemeral node goes with; "": the node stays.
	Session string `json:"session,omitempty"`
}

// closed lets nobody do anything: no list has such a name.
var closed = acl{Read: "\x00", Write: "\x00", Change: "\x00"}

// list returns the name of the list of those who may do something.
func (a acl) list(r right) string {
	return [...]string{toRead: a.Read, toWrite: a.Write, toAdminister: a.Change}[r]
}

// checksum returns the SHA-256 of contents.
func checksum(contents []byte) string {
	sum := sha256.Sum256(contents)
	return hex.EncodeToString(sum[:])
}

// parentOf returns the path above one; "" is the top.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}

// putNodeLocked takes in a key of a node. The two keys of a node come and go together.
func (m *mirror) putNodeLocked(kv *mvccpb.KeyValue) {
	path, contents := strings.CutPrefix(string(kv.Key), contentsAt)
	path = strings.TrimPrefix(path, nodesAt)
	n := m.nodeLocked(path)
	if n != nil {
		m.countLocked(n, -1)
	} else {
		n = &node{path: path}
		m.nodes.ReplaceOrInsert(n)
	}
	rev, isNew := kv.ModRevision, kv.CreateRevision == kv.ModRevision
	if contents {
		n.contentsAt, n.size, n.checksum, n.list = rev, len(kv.Value), checksum(kv.Value), listOf(path, kv.Value)
	} else {
		n.instance, n.aclAt, n.acl = kv.CreateRevision, rev, acl{}
		if json.Unmarshal(kv.Value, &n.acl) != nil {
			n.acl = closed
		}
		if n.acl.Session != "" {
			m.ownerLocked(n.acl.Session).nodes[path] = n.instance
		}
	}
	m.countLocked(n, 1)
	switch {
	case contents && !isNew:
		m.tellNodeLocked(path, hfcell.ContentsChanged, hfcell.ChildChanged, rev, rev)
	case !contents && isNew:
		m.tellNodeLocked(path, hfcell.Added, hfcell.ChildAdded, rev, rev)
	}
}

// deleteNodeLocked takes in that a node is gone.
func (m *mirror) deleteNodeLocked(path string, rev int64) {
	n := m.nodeLocked(path)
	if n == nil {
		return
	}
	if n.acl.Session != "" {
		delete(m.ownerLocked(n.acl.Session).nodes, path)
	}
	m.countLocked(n, -1)
	m.nodes.Delete(n)
	m.tellNodeLocked(path, hfcell.Removed, hfcell.ChildRemoved, 0, rev)
}

// nodeLocked returns a node, or nil if there is none.
func (m *mirror) nodeLocked(path string) *node {
	n, _ := m.nodes.Get(&node{path: path})
	return n
}

// hasChildrenLocked reports whether there are nodes below a path.
func (m *mirror) hasChildrenLocked(path string) (has bool) {
	m.nodes.AscendGreaterOrEqual(&node{path: path + "/"}, func(n *node) bool {
		has = strings.HasPrefix(n.path, path+"/")
		return false
	})
	return has
}

// showNodeLocked describes a node.
func (m *mirror) showNodeLocked(n *node) *cellv1.Node {
	shown := &cellv1.Node{
		Path: n.path, Instance: n.instance, ContentGeneration: n.contentsAt, AclGeneration: n.aclAt,
		Checksum: n.checksum, Size: int32(n.size), HasChildren: m.hasChildrenLocked(n.path),
		Acl: &cellv1.ACL{Read: n.acl.Read, Write: n.acl.Write, Change: n.acl.Change}, Session: n.acl.Session,
	}
	if lock := m.nameLocked(n.path); lock != nil {
		for _, e := range lock.entries[:lock.holders] {
			if !e.Value.Closed {
				shown.LockGeneration = max(shown.LockGeneration, int64(e.tokenOf()))
			}
		}
	}
	return shown
}

// tellNodeLocked tells the sessions that watch a node, or the one above it, what a revision has done to it.
func (m *mirror) tellNodeLocked(path string, own, ofChild cellv1.NodeEventKind, generation, rev int64) {
	m.tellWatchersLocked(path, own, &cellv1.NodeEvent{ContentGeneration: generation, Revision: rev})
	m.tellWatchersLocked(parentOf(path), ofChild, &cellv1.NodeEvent{Child: path, ContentGeneration: generation, Revision: rev})
}

// kinds is a set of kinds of events.
type kinds uint32

func (k kinds) has(kind cellv1.NodeEventKind) bool { return k&(1<<kind) != 0 }

// tellWatchersLocked tells the sessions that watch a path, those that may still read it.
func (m *mirror) tellWatchersLocked(path string, kind cellv1.NodeEventKind, e *cellv1.NodeEvent) {
	for s, want := range m.watchers[path] {
		who := m.guard.named(s.record.Principal)
		if want.has(kind) && !s.over && s.stream != nil && m.mayLocked(who, path, toRead) && (e.Child == "" || m.mayLocked(who, e.Child, toRead)) {
			s.stream.addLocked(&cellv1.Event{Event: &cellv1.Event_Node{Node: &cellv1.NodeEvent{
				Path: path, Kind: kind, Child: e.Child, ContentGeneration: e.ContentGeneration,
				Revision: e.Revision, Token: e.Token,
			}}})
		}
	}
}

// putWatchLocked takes in what a session wants to be told of a node.
func (m *mirror) putWatchLocked(key string, value []byte) {
	id, path, _ := strings.Cut(strings.TrimPrefix(key, watchesAt), "/")
	var want kinds
	if json.Unmarshal(value, &want) != nil {
		return
	}
	s := m.ownerLocked(id)
	if m.watchers[path] == nil {
		m.watchers[path] = map[*session]kinds{}
	}
	m.watchers[path][s] = want
	s.watches[path] = true
}

func (m *mirror) deleteWatchLocked(key string) {
	id, path, _ := strings.Cut(strings.TrimPrefix(key, watchesAt), "/")
	s := m.ownerLocked(id)
	delete(s.watches, path)
	delete(m.watchers[path], s)
	if len(m.watchers[path]) == 0 {
		delete(m.watchers, path)
	}
}
