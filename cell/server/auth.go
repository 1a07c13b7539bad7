package server

import (
	"context"
	"strings"

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

var errNotYours = refuse(cellv1.Reason_REASON_NOT_YOURS, "the session's secret is wrong, or it is another principal's")

// allowed reports whether the caller may do something with a name.
func (f *front) allowed(ctx context.Context, name string, r right) error {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	return f.allowedLocked(ctx, name, r)
}

func (f *front) allowedLocked(ctx context.Context, name string, r right) error {
	if !f.mirror.mayLocked(callerOf(ctx), name, r) {
		return refuse(cellv1.Reason_REASON_FORBIDDEN, "the principal has no right to %s %.80q", rightNames[r], name)
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

// listsAt is what the paths of lists begin with: a node below it names principals, one on each line.
const listsAt = "acl/"

// isList reports whether a path is that of a list, or above all of them.
func isList(path string) bool { return path+"/" == listsAt || strings.HasPrefix(path, listsAt) }

// listOf returns the principals that the contents of a node name, if it is a list.
func listOf(path string, contents []byte) map[string]bool {
	if !strings.HasPrefix(path, listsAt) {
		return nil
	}
	list := map[string]bool{}
	for line := range strings.Lines(string(contents)) {
		if line = strings.TrimSpace(line); line != "" {
			list[line] = true
		}
	}
	return list
}

// aclLocked returns who may do what with a path: what its node says, or that of the nearest one above.
// The zero value, where there is none, narrows nothing.
func (m *mirror) aclLocked(path string) acl {
	for path != "" {
		if n := m.nodeLocked(path); n != nil {
			return n.acl
		}
		path = parentOf(path)
	}
	return acl{}
}

// listedLocked reports whether a list lets a principal: an empty name lets everybody, and a list that is
// not there nobody.
func (m *mirror) listedLocked(name, principal string) bool {
	n := m.nodeLocked(listsAt + name)
	return name == "" || n != nil && n.list[principal]
}
