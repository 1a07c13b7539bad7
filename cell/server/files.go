package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// files serves the API of files.
type files struct{ *front }

// Get reads a node and its contents.
func (f files) Get(ctx context.Context, r *cellv1.GetRequest) (*cellv1.GetResponse, error) {
	if err := f.sync(ctx); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	rev, err := f.mirror.rev, f.allowedLocked(ctx, r.Path, toRead)
	shown, missing := f.showNodeLocked(r.Path, r.Instance)
	f.mirror.mu.Unlock()
	if err := cmp.Or(err, missing); err != nil {
		return nil, err
	}
	// The contents are read as they were then: whoever changes the node or its rights now has done so later.
	resp, err := f.store.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(contentsAt + r.Path), Revision: rev, Serializable: true})
	if err != nil {
		return nil, ofStore(ctx, err)
	}
	return &cellv1.GetResponse{Node: shown, Contents: resp.Kvs[0].Value}, nil
}

// Stat reads a node without its contents.
func (f files) Stat(ctx context.Context, r *cellv1.StatRequest) (*cellv1.StatResponse, error) {
	if err := f.syncFor(ctx, r.Path, toRead); err != nil {
		return nil, err
	}
	shown, err := f.showNode(r.Path, r.Instance)
	return &cellv1.StatResponse{Node: shown}, err
}

// syncFor waits until the mirror has all that counts now, and reports whether the caller may do something with a path. If
// another member takes the right away, and then a secret is written, this member does not show the secret. "" is of no
// node: everybody may.
func (f *front) syncFor(ctx context.Context, path string, r right) error {
	if err := f.sync(ctx); err != nil || path == "" {
		return err
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return f.allowedLocked(ctx, path, r)
}

// changed does a transaction that is made of what the mirror shows, until that is how it is, for a caller who has a right
// to a path. Before that it has the mirror catch up. plan returns the transaction, under the mirror's mutex.
func (f *front) changed(ctx context.Context, path string, r right, plan func() (*etcdserverpb.TxnRequest, error)) (int64, error) {
	planned := func() (*etcdserverpb.TxnRequest, error) {
		f.mirror.mu.Lock()
		defer f.mirror.mu.Unlock()
		if path != "" { // else it is about the session's own
			if err := f.allowedLocked(ctx, path, r); err != nil {
				return nil, err
			}
		}
		txn, err := plan()
		if s, depends := ctx.Value(sequencerKey{}).(driver.Sequencer); depends && err == nil { // nothing is written after its hold has ended
			stands, stale := f.standsLocked(s)
			txn.Compare, err = append(txn.Compare, stands), stale
		}
		return txn, err
	}
	for {
		if err := f.sync(ctx); err != nil {
			return 0, err
		}
		txn, err := planned()
		if err != nil {
			return 0, err
		}
		resp, err := f.txn(ctx, txn)
		if err != nil {
			return 0, ofStore(ctx, err)
		}
		if resp.Succeeded {
			return resp.Header.Revision, nil
		}
	}
}

func errNoNode(path string) error {
	return refuse(cellv1.Reason_REASON_NO_NODE, "there is no node %.80q, or not the one that is meant", path)
}

// errOther is the answer to a call that means something as it was before.
func errOther(what, path string) error {
	return refuse(cellv1.Reason_REASON_CHANGED, "the %s of %.80q are of another generation", what, path)
}

// meantLocked returns the node that a call means, and an error if it is not there, or its contents are not of the generation
// that they must have. 0, or nil: any.
func (f *front) meantLocked(path string, instance int64, generation *int64) (*node, error) {
	n := f.mirror.nodeLocked(path)
	switch {
	case n == nil || instance != 0 && instance != n.instance:
		return nil, errNoNode(path)
	case generation != nil && *generation != n.contentsAt:
		return n, errOther("contents", path)
	}
	return n, nil
}

// showNodeLocked shows a node as the mirror has it.
func (f *front) showNodeLocked(path string, instance int64) (*cellv1.Node, error) {
	n, err := f.meantLocked(path, instance, nil)
	if err != nil {
		return nil, err
	}
	return f.mirror.showNodeLocked(n), nil
}

// showNode does that.
func (f *front) showNode(path string, instance int64) (*cellv1.Node, error) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return f.showNodeLocked(path, instance)
}

// Put writes the contents of a node.
func (f files) Put(ctx context.Context, m *cellv1.PutRequest) (*cellv1.PutResponse, error) {
	var s *session // nil: a node that is made stays
	if m.Session != "" {
		var err error
		if s, err = f.session(ctx, m.Session); err != nil {
			return nil, err
		}
	}
	if err := f.mayStore(ctx, m.Path, len(m.Contents)); err != nil {
		return nil, err
	}
	var shown *cellv1.Node
	rev, err := f.changed(ctx, m.Path, toWrite, func() (txn *etcdserverpb.TxnRequest, err error) {
		txn, shown, err = f.writeLocked(ctx, m, s)
		return txn, err
	})
	if err != nil {
		return nil, err
	}
	// Somebody may have written or removed the node since: the numbers are those of this write.
	if shown.Instance == 0 {
		shown.Instance, shown.AclGeneration = rev, rev
	}
	shown.ContentGeneration, shown.Size, shown.Checksum = rev, int32(len(m.Contents)), checksum(m.Contents)
	return &cellv1.PutResponse{Node: shown}, nil
}

// writeLocked returns the transaction that writes a node, if it is as the mirror shows it, and the node as it is before; one
// that is to be made has no numbers yet.
func (f *front) writeLocked(ctx context.Context, m *cellv1.PutRequest, s *session) (*etcdserverpb.TxnRequest, *cellv1.Node, error) {
	key, contents := []byte(nodesAt+m.Path), []byte(contentsAt+m.Path)
	n, err := f.meantLocked(m.Path, m.Instance, m.IfGeneration)
	switch {
	case err == nil:
		same := compares{table.CompareChanged(contents, n.contentsAt)}
		return when(same, table.PutOp(contents, string(m.Contents), 0)), f.mirror.showNodeLocked(n), nil
	case n != nil || m.Instance != 0:
		return nil, nil, err
	case m.GetIfGeneration() != 0:
		return nil, nil, errOther("contents", m.Path)
	}
	rights := f.mirror.aclLocked(parentOf(m.Path))
	rights.By, rights.Session = principalOf(ctx), ""
	same := compares{table.CompareChanged(key, 0)}
	if s != nil {
		if s.over {
			return nil, nil, errSessionOver
		}
		rights.Session, same = s.id, append(same, exists(s.id))
	}
	inherited, _ := json.Marshal(rights) // of strings: cannot fail
	txn := when(same, table.PutOp(key, string(inherited), 0), table.PutOp(contents, string(m.Contents), 0))
	return txn, f.mirror.showNodeLocked(&node{path: m.Path, acl: rights}), nil
}

// Delete removes a node, if it has no children.
func (f files) Delete(ctx context.Context, m *cellv1.DeleteRequest) (*cellv1.DeleteResponse, error) {
	_, err := f.changed(ctx, m.Path, toWrite, func() (*etcdserverpb.TxnRequest, error) {
		n, err := f.meantLocked(m.Path, m.Instance, m.IfGeneration)
		switch {
		case err != nil:
			return nil, err
		case f.mirror.hasChildrenLocked(m.Path):
			return nil, refuse(cellv1.Reason_REASON_HAS_CHILDREN, "%.80q has nodes below it: delete them first", m.Path)
		}
		key, contents, below := []byte(nodesAt+m.Path), []byte(contentsAt+m.Path), nodesAt+m.Path+"/"
		return when(compares{
			table.CompareChanged(contents, n.contentsAt),
			table.CompareCreated([]byte(below), []byte(clientv3.GetPrefixRangeEnd(below)), etcdserverpb.Compare_LESS, 1),
		}, table.DeleteOp(key), table.DeleteOp(contents)), nil
	})
	return &cellv1.DeleteResponse{}, err
}

// ReadDir lists the children of a path.
func (f files) ReadDir(ctx context.Context, m *cellv1.ReadDirRequest) (*cellv1.ReadDirResponse, error) {
	if err := f.syncFor(ctx, m.Path, toRead); err != nil {
		return nil, err
	}
	resp, prefix := &cellv1.ReadDirResponse{}, ""
	if m.Path != "" {
		prefix = m.Path + "/"
	}
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	children := map[string]bool{}
	f.mirror.nodes.AscendGreaterOrEqual(&node{path: prefix}, func(n *node) bool {
		rest, below := strings.CutPrefix(n.path, prefix)
		if first, _, _ := strings.Cut(rest, "/"); below {
			children[prefix+first] = true
		}
		return below
	})
	for _, path := range slices.Sorted(maps.Keys(children)) {
		if path <= m.After || f.allowedLocked(ctx, path, toRead) != nil {
			continue
		}
		if len(resp.Nodes) == limitOf(m.Limit) {
			resp.More = true
			break
		}
		child := &cellv1.Node{Path: path, HasChildren: true} // unless it is a node itself
		if n := f.mirror.nodeLocked(path); n != nil {
			child = f.mirror.showNodeLocked(n)
		}
		resp.Nodes = append(resp.Nodes, child)
	}
	return resp, nil
}

// SetACL changes who may do what with a node.
func (f files) SetACL(ctx context.Context, m *cellv1.SetACLRequest) (*cellv1.SetACLResponse, error) {
	next := acl{Read: m.Acl.GetRead(), Write: m.Acl.GetWrite(), Change: m.Acl.GetChange()}
	var shown *cellv1.Node
	rev, err := f.changed(ctx, m.Path, toAdminister, func() (_ *etcdserverpb.TxnRequest, err error) {
		if shown, err = f.showNodeLocked(m.Path, m.Instance); err != nil {
			return nil, err
		}
		if m.IfGeneration != nil && *m.IfGeneration != shown.AclGeneration {
			return nil, errOther("rights", m.Path)
		}
		was := f.mirror.aclLocked(m.Path)
		next.By, next.Session = was.By, was.Session
		text, err := json.Marshal(next)
		return table.Change(nodesAt+m.Path, shown.AclGeneration, string(text)), err
	})
	if err != nil {
		return nil, err
	}
	f.note(ctx, "rights were changed", "path", m.Path, "read", next.Read, "write", next.Write, "change", next.Change)
	shown.AclGeneration, shown.Acl = rev, &cellv1.ACL{Read: next.Read, Write: next.Write, Change: next.Change}
	return &cellv1.SetACLResponse{Node: shown}, nil
}

// Watch subscribes a session to what happens to a node. The subscription is a key of the session, so any member
// tells of it.
func (f files) Watch(ctx context.Context, m *cellv1.FilesWatchRequest) (*cellv1.FilesWatchResponse, error) {
	var want kinds
	for _, k := range m.Kinds {
		if k <= 0 || k >= cellv1.NodeEventKind_NODE_EVENT_KIND_REREAD {
			return nil, refuse(cellv1.Reason_REASON_INVALID, "kinds: %v is none that can be watched", k)
		}
		want |= 1 << k
	}
	s, err := f.session(ctx, m.Session)
	if err != nil {
		return nil, err
	}
	if err := f.hasSpace(); err != nil {
		return nil, err
	}
	if err := f.syncFor(ctx, m.Path, toRead); err != nil {
		return nil, err
	}
	f.mirror.mu.Lock()
	n := len(s.watches)
	f.mirror.mu.Unlock()
	if want != 0 && n >= maxWatches {
		return nil, refuse(cellv1.Reason_REASON_QUOTA, "the session watches %d nodes: more are not right", n)
	}
	key := watchesAt + s.id + "/" + m.Path
	op := table.DeleteOp([]byte(key))
	if want != 0 {
		op = table.PutOp([]byte(key), fmt.Sprint(uint32(want)), 0)
	}
	err = f.doFor(ctx, s, op)
	shown, _ := f.showNode(m.Path, 0) // nil: it is not there
	return &cellv1.FilesWatchResponse{Node: shown}, err
}
