package server

import (
	"context"
	"fmt"

	"golang.org/x/time/rate"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// limits are what a principal may have at most, by kind.
type limits map[string]float64

// defaultLimits are for principals that have none of their own. There are no other kinds.
var defaultLimits = limits{
	"sessions": 10_000,
	"locks":    100_000, // holds, places in queues, and names that its holds have closed
	"nodes":    100_000, // that it has made
	"bytes":    256 << 20,
	"requests": 2_000, // per second, at each member
}

// complete fills in what is not set.
func (l limits) complete() error {
	for kind, most := range l {
		if _, known := defaultLimits[kind]; !known || most < 0 {
			return fmt.Errorf("limits: %.20q: %v: there is no such limit, or it is negative", kind, most)
		}
	}
	for kind, most := range defaultLimits {
		if l[kind] == 0 {
			l[kind] = most
		}
	}
	return nil
}

// usage is what a principal has in the cell, by kind. The mirror's mutex guards it.
type usage map[string]int64

// usageLocked returns what a principal has.
func (m *mirror) usageLocked(principal string) usage {
	u := m.usages[principal]
	if u == nil {
		u = usage{}
		m.usages[principal] = u
	}
	return u
}

// near is how far from a limit what this member has just written need not be known.
const near = 1000

// mayHave reports whether there is space for anything new, and a principal may have more. Of what others do at the same
// moment nothing is known: so limits may be passed by as many calls as are under way at once.
func (f *front) mayHave(ctx context.Context, p *caller, kind string, more int64) error {
	if err := f.hasSpace(); err != nil || more <= 0 || p == nil || p.Limits == nil {
		return err
	}
	have := func() int64 {
		f.mirror.mu.Lock()
		defer f.mirror.mu.Unlock()
		return f.mirror.usageLocked(p.Name)[kind] + more
	}
	n, most := have(), int64(p.Limits[kind])
	if n+near > most {
		if err := f.mirror.reach(ctx, f.written.Load()); err != nil {
			return ofStore(ctx, err)
		}
		n = have()
	}
	if n > most {
		return refuse(cellv1.Reason_REASON_QUOTA, "the principal would have %d %s: at most %d are right", n, kind, most)
	}
	return nil
}

// maxWaiters is how many may wait for one name, and maxWatches how many nodes a session may watch.
const (
	maxWaiters = 10_000
	maxWatches = 10_000
)

// mayStore reports whether the caller may write the contents of a node. They count as those of the principal that
// has made the node.
func (f *front) mayStore(ctx context.Context, path string, size int) error {
	maker, nodes, bytes := callerOf(ctx), int64(1), int64(size)
	f.mirror.mu.Lock()
	if n := f.mirror.nodeLocked(path); n != nil {
		maker, nodes, bytes = f.guard.named(n.acl.By), 0, bytes-int64(n.size)
	}
	f.mirror.mu.Unlock()
	if err := f.mayHave(ctx, maker, "nodes", nodes); err != nil {
		return err
	}
	return f.mayHave(ctx, maker, "bytes", bytes)
}

// countLocked adds a node to what its maker has, or takes it away.
func (m *mirror) countLocked(n *node, sign int64) {
	u := m.usageLocked(n.acl.By)
	u["nodes"] += sign
	u["bytes"] += sign * int64(n.size)
}

// pace bounds how often a principal calls this member. Renewals and releases have a lane of their own: nobody
// loses a session, and no lock stays closed, because the same principal asks for too much else.
type pace struct{ ordinary, renewals *rate.Limiter }

// perSession is how many renewals and releases per second each session that a principal may have adds.
const perSession = 5

func newPace(l limits) *pace {
	limiter := func(perSecond float64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond), 1))
	}
	return &pace{limiter(l["requests"]), limiter(2*l["requests"] + perSession*l["sessions"])}
}

// admits says why a principal may not make another call.
func (p *principal) admits(l lane) error {
	switch {
	case l == operating && !p.administers():
		return refuse(cellv1.Reason_REASON_FORBIDDEN, "the principal does not administer the cell")
	case p.pace == nil, l == renewal && p.pace.renewals.Allow(), l != renewal && p.pace.ordinary.Allow():
		return nil
	}
	return refuse(cellv1.Reason_REASON_QUOTA, "the principal calls too often: at most %v requests per second are right", p.pace.ordinary.Limit())
}

// mayWithdraw waits until the principal may withdraw n requests that are not there. Each counts as an ordinary call: it leaves
// a tombstone for minutes, so withdrawals of what was never asked for could fill the cell.
func (p *principal) mayWithdraw(ctx context.Context, n int) error {
	if p.pace == nil || n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if p.pace.ordinary.WaitN(ctx, min(n, p.pace.ordinary.Burst())) != nil {
		return refuse(cellv1.Reason_REASON_QUOTA, "the principal withdraws too many requests that are not there: at most %v per second are right", p.pace.ordinary.Limit())
	}
	return nil
}

// etcd ends itself when it cannot write its log, and takes no more changes when its file has grown to its
// quota. So a member lets nobody have anything new long before: what is there goes on, and is given back.

// DefaultReserve is how much of the disk a member leaves free that was not told, in bytes. etcd sets 64 MiB
// aside for its log at a time.
const DefaultReserve = 256 << 20

// backendQuota is how large etcd's file may become, and mostOfQuota how large while members still let
// sessions have something new, in bytes.
const (
	backendQuota = 2 << 30
	mostOfQuota  = backendQuota / 10 * 9
)

// shortage says what there is too little of; "": nothing.
func (m *Member) shortage() string {
	if size := m.etcd.Server.Backend().Size(); size > mostOfQuota {
		return fmt.Sprintf("the file of member %s has %d MiB and may have %d: delete files, and start it again: that makes its file small", m.config.Name, size>>20, backendQuota>>20)
	}
	if free := freeSpace(m.config.Data); free < m.reserve.Load() {
		return fmt.Sprintf("the disk of member %s has %d MiB left, and %d are a reserve: make room on it", m.config.Name, free>>20, m.reserve.Load()>>20)
	}
	return ""
}

// hasSpace returns an error if there is no space for anything new.
func (f *front) hasSpace() error {
	if s := f.shortage(); s != "" {
		return refuse(cellv1.Reason_REASON_REFUSED, "%s", s)
	}
	return nil
}
