package server

import (
	"slices"
	"strings"

	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// brokenText is the value of the tombstone of a hold that an operator broke.
const brokenText = "broken"

// name is a name that somebody has or waits for. The mirror's mutex guards it.
type name struct {
	name    string
	entries []*entry // in the order of their create revisions
	holders int      // how many of them hold it
}

// entry is a key of a name: a hold, a place in its queue, or what closes the name. The mirror's mutex
// guards it.
type entry struct {
	table.Entry
	at       *name
	session  *session // nil: it closes its name
	holds    bool
	since    driver.Instant // when this member has learnt that it is there, or holds, or closes the name
	gone     bool
	released bool          // by a call of this member: its session need not be told
	answered chan struct{} // closed when a place has become a hold or is gone; nil: nobody waits for that
}

// ownerOf is the owner of a session's request: unique in the cell.
func ownerOf(session, request string) string { return session + "." + request }

// requestFor names a session's request for a name. The same id may be used for another name.
func requestFor(name, owner string) string { return owner + "/" + name }

// tombstoneOf is the key that says that such a request is over.
func tombstoneOf(name, owner string) string { return layout.Tombstone(requestFor(name, owner)) }

// request returns the id that the session has given to the request.
func (e *entry) request() string {
	_, request, _ := strings.Cut(e.Value.Owner, ".")
	return request
}

// isPlace reports whether an entry waits, or is a claim: its client has not begun to use it.
func (e *entry) isPlace() bool { return e.Value.Place }

// aheadLocked returns how many entries are before it.
func (e *entry) aheadLocked() int { return max(slices.Index(e.at.entries, e), 0) }

// answerLocked wakes the calls that wait for what becomes of a place.
func (e *entry) answerLocked() {
	if e.answered != nil {
		close(e.answered)
		e.answered = nil
	}
}

// answerChanLocked returns a channel that is closed when the place has become a hold or is gone.
func (e *entry) answerChanLocked() <-chan struct{} {
	if e.answered == nil {
		e.answered = make(chan struct{})
	}
	return e.answered
}

// find returns the entry of an owner, or nil. What closes a name has no owner. A nil name has none.
func (n *name) find(owner string) *entry {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.Value.Owner == owner {
			return e
		}
	}
	return nil
}

// newest returns the highest create revision of the entries whose keys begin so.
func (n *name) newest(prefix string) (rev int64) {
	if n == nil {
		return 0
	}
	for _, e := range n.entries {
		if strings.HasPrefix(e.Key, prefix) {
			rev = max(rev, e.Created)
		}
	}
	return rev
}

// waiters returns how many entries wait.
func (n *name) waiters() int { return len(n.entries) - n.holders }

// admits reports whether the name's entries, all of them, admit a request behind them.
func (n *name) admits(u table.Use) bool {
	if n == nil {
		return true
	}
	if n.holders < len(n.entries) {
		return false
	}
	var a table.Admission
	for _, e := range n.entries {
		a.Admit(e.Use())
	}
	return a.Admit(u)
}

// holdingLocked describes an entry to its session.
func (e *entry) holdingLocked() *cellv1.Holding {
	h := &cellv1.Holding{Name: e.at.name, Request: e.request(), Mode: hfcell.ModeOf(e.Mode), Revision: e.Created}
	if !e.holds {
		h.Ahead = int32(e.aheadLocked())
		return h
	}
	h.Claim, h.Contended = e.isPlace(), e.at.waiters() > 0
	h.Token = int64(e.tokenOf())
	return h
}
