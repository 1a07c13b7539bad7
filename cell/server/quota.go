package server

import (
	"context"
	"fmt"
	"sync/atomic"

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
	"requests": 2_000,  // per second, at each member
	"calls":    20_000, // under way at once, at each member
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
func (f *front) mayHave(ctx context.Context, p *principal, kind string, more int64) error {
	if err := f.hasSpace(); err != nil || p == nil || p.limits == nil {
		return err
	}
	count := func() int64 {
		f.mirror.mu.Lock()
		defer f.mirror.mu.Unlock()
		return f.mirror.usageLocked(p.name)[kind] + more
	}
	most := int64(p.limits[kind])
	n := count()
	if n+near > most {
		if err := f.mirror.reach(ctx, f.written.Load()); err != nil {
			return ofStore(ctx, err)
		}
		n = count()
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

// mayWait reports whether the caller may take another place in the queue of a name.
func (f *front) mayWait(ctx context.Context, text string) error {
	f.mirror.mu.Lock()
	waiters := 0
	if n := f.mirror.nameLocked(text); n != nil {
		waiters = n.waiters()
	}
	f.mirror.mu.Unlock()
	if waiters >= maxWaiters {
		return refuse(cellv1.Reason_REASON_QUOTA, "%d wait for %.80q: more are not right", waiters, text)
	}
	return f.mayHave(ctx, callerOf(ctx), "locks", 1)
}

// mayWatch reports whether a session may watch another node.
func (f *front) mayWatch(s *session) error {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	if n := len(s.watches); n >= maxWatches {
		return refuse(cellv1.Reason_REASON_QUOTA, "the session watches %d nodes: more are not right", n)
	}
	return nil
}

// mayStore reports whether the caller may write the contents of a node. They count as those of the principal that
// has made the node.
func (f *front) mayStore(ctx context.Context, path string, size int) error {
	f.mirror.mu.Lock()
	n := f.mirror.nodeLocked(path)
	maker, more := callerOf(ctx), int64(size)
	if n != nil {
		maker, more = f.guard.named(n.acl.By), more-int64(n.size)
	}
	f.mirror.mu.Unlock()
	if n == nil {
		if err := f.mayHave(ctx, maker, "nodes", 1); err != nil {
			return err
		}
	}
	if more <= 0 {
		return nil
	}
	return f.mayHave(ctx, maker, "bytes", more)
}

// countLocked adds a node to what its maker has, or takes it away.
func (m *mirror) countLocked(n *node, sign int64) {
	u := m.usageLocked(n.acl.By)
	u["nodes"] += sign
	u["bytes"] += sign * int64(n.size)
}

// pace bounds how often a principal calls this member. Renewals and releases have a lane of their own: nobody
// loses a session, and no lock stays closed, because the same principal asks for too much else.
type pace struct {
	ordinary, renewals *rate.Limiter
	underWay           atomic.Int64 // ordinary calls
	most               atomic.Int64
}

// perSession is how many renewals and releases per second each session that a principal may have adds.
const perSession = 5

// newPace returns the pace of a principal that has made no call yet: its buckets are full.
func newPace(l limits) *pace {
	p := &pace{ordinary: rate.NewLimiter(0, burst(l["requests"])), renewals: rate.NewLimiter(0, burst(l.renewals()))}
	p.set(l)
	return p
}

// set changes the limits. What is in the buckets stays.
func (p *pace) set(l limits) {
	p.ordinary.SetLimit(rate.Limit(l["requests"]))
	p.ordinary.SetBurst(burst(l["requests"]))
	p.renewals.SetLimit(rate.Limit(l.renewals()))
	p.renewals.SetBurst(burst(l.renewals()))
	p.most.Store(int64(l["calls"]))
}

// renewals is how many renewals and releases per second a principal may make.
func (l limits) renewals() float64 { return 2*l["requests"] + perSession*l["sessions"] }

// burst is what a bucket holds: as much as comes in a second.
func burst(perSecond float64) int { return max(int(perSecond), 1) }

// begin reports whether another call may begin, and what to do when it has ended.
func (p *pace) begin(l lane) (end func(), err error) {
	end = func() {}
	switch {
	case p == nil || l == unpaced:
		return end, nil
	case l == renewal:
		if !p.renewals.Allow() {
			return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal renews and releases too often")
		}
		return end, nil
	case !p.ordinary.Allow():
		return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal calls too often: at most %v requests per second are right", p.ordinary.Limit())
	case p.underWay.Add(1) > p.most.Load():
		p.underWay.Add(-1)
		return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal has too many calls under way: at most %d are right", p.most.Load())
	}
	return func() { p.underWay.Add(-1) }, nil
}

// withdraw waits until the principal may withdraw n requests that are not there: each is an ordinary call.
func (p *pace) withdraw(ctx context.Context, n int) error {
	if p == nil || n == 0 {
		return nil
	}
	if err := p.ordinary.WaitN(ctx, min(n, p.ordinary.Burst())); err != nil {
		return refuse(cellv1.Reason_REASON_QUOTA, "the principal withdraws too many requests that are not there: at most %v per second are right", p.ordinary.Limit())
	}
	return nil
}
