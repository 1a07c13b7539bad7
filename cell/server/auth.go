package server

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// callerKey is where the context of a call has its principal.
type callerKey struct{}

// callerOf returns who makes a call. Nobody may do anything.
func callerOf(ctx context.Context) *principal {
	if p, ok := ctx.Value(callerKey{}).(*principal); ok {
		return p
	}
	return &principal{}
}

// principalOf returns the name of who makes a call; "" if the cell knows no principals.
func principalOf(ctx context.Context) string { return callerOf(ctx).name }

// right is what one wants to do with a name. Each includes those before it.
type right uint8

const (
	toRead       right = iota
	toWrite            // lock it, write its contents
	toAdminister       // break others' holds, say who may do what
)

const (
	toBreak  = toAdminister
	toChange = toAdminister
)

var errNotYours = refuse(cellv1.Reason_REASON_NOT_YOURS, "the session's secret is wrong, or it is another principal's")

func errForbidden(name string, r right) error {
	return refuse(cellv1.Reason_REASON_FORBIDDEN, "the principal has no right to %s %.80q", rightNames[r], name)
}

// allowed reports whether the caller may do something with a name.
func (f *front) allowed(ctx context.Context, name string, r right) error {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return f.allowedLocked(ctx, name, r)
}

func (f *front) allowedLocked(ctx context.Context, name string, r right) error {
	if !f.mirror.mayLocked(callerOf(ctx), name, r) {
		return errForbidden(name, r)
	}
	return nil
}

// mayLocked reports whether a principal may do something with a name: by the list of principals, and by the
// ACL of the nearest node. Who administers the cell needs no ACL: else a list that is lost would lock
// everybody out.
func (m *mirror) mayLocked(p *principal, name string, r right) bool {
	needs := r
	if isList(name) && r == toWrite {
		needs = toAdminister // who may write lists, may do what they say
	}
	if !p.may(name, needs) {
		return false
	}
	if p.administers() {
		return true
	}
	return m.listedLocked(m.aclLocked(name).list(r), p.name)
}

// mayAdminister reports whether the caller may do everything.
func (f *front) mayAdminister(ctx context.Context) error {
	if !callerOf(ctx).administers() {
		return refuse(cellv1.Reason_REASON_FORBIDDEN, "the principal does not administer the cell")
	}
	return nil
}

// stillAllowed reports whether the caller may do something with a path, as the mirror shows it, and returns what compares
// that the ACL which says so is still that. A call whose right is taken away at another member, while it is at work,
// must not write after that, nor make a node with the rights from before.
func (f *front) stillAllowed(ctx context.Context, path string, r right) ([]*etcdserverpb.Compare, error) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return f.stillAllowedLocked(ctx, path, r)
}

func (f *front) stillAllowedLocked(ctx context.Context, path string, r right) (same []*etcdserverpb.Compare, err error) {
	if err := f.allowedLocked(ctx, path, r); err != nil {
		return nil, err
	}
	list := f.mirror.aclLocked(path).list(r)
	for ; path != ""; path = parentOf(path) {
		n, there := f.mirror.nodes.Get(&node{path: path})
		if there {
			same = append(same, compareChanged([]byte(nodesAt+path), n.aclAt))
			break
		}
		same = append(same, compareChanged([]byte(nodesAt+path), 0))
	}
	if list != "" {
		written := int64(0)
		if n, there := f.mirror.nodes.Get(&node{path: listsAt + list}); there {
			written = n.contentsAt
		}
		same = append(same, compareChanged([]byte(contentsAt+listsAt+list), written))
	}
	return same, nil
}
