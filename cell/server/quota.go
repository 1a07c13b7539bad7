package server

import (
	"context"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// usage is what a principal has in the cell. The mirror's mutex guards it.
type usage struct {
	sessions int
	entries  int // holds and places
	closed   int // names that are closed for the minimum of a hold that is gone
	nodes    int // that it has made
	bytes    int64
}

// usageLocked returns what a principal has.
func (m *mirror) usageLocked(principal string) *usage {
	u := m.usages[principal]
	if u == nil {
		u = &usage{}
		m.usages[principal] = u
	}
	return u
}

// near is how far from a limit what this member has just written need not be known.
const near = 1000

// mayHave reports whether a principal may have more. Of what others do at the same moment nothing is known: so
// limits may be passed by as many calls as are under way at once.
func (f *front) mayHave(
	ctx context.Context, p *principal, what string, most func(*limits) int64, has func(*mirror, *usage) int64, more int64,
) error {
	if p == nil || p.limits == nil {
		return nil
	}
	limit := most(p.limits)
	count := func() int64 {
		f.mirror.mu.Lock()
		defer f.mirror.mu.Unlock()
		return has(f.mirror, f.mirror.usageLocked(p.name))
	}
	n := count()
	if n+more+near > limit {
		if err := f.mirror.reach(ctx, f.written.Load()); err != nil {
			return ofStore(ctx, err)
		}
		n = count()
	}
	if n+more > limit {
		return refuse(cellv1.Reason_REASON_QUOTA, "the principal has %d %s: at most %d are right", n, what, limit)
	}
	return nil
}

func (f *front) mayOpen(ctx context.Context) error {
	return f.mayHave(ctx, callerOf(ctx), "sessions", func(l *limits) int64 { return int64(l.Sessions) },
		func(_ *mirror, u *usage) int64 { return int64(u.sessions) }, 1)
}

// mayHold reports whether the caller may hold another lock, or wait for one.
func (f *front) mayHold(ctx context.Context) error {
	return f.mayHave(ctx, callerOf(ctx), "locks and places", func(l *limits) int64 { return int64(l.Locks) },
		func(_ *mirror, u *usage) int64 { return int64(u.entries + u.closed) }, 1)
}

// maxWaiters is how many may wait for one name, whoever they are.
const maxWaiters = 10_000

// mayWait reports whether the caller may take another place in the queue of a name.
func (f *front) mayWait(ctx context.Context, text string) error {
	if err := f.mayHold(ctx); err != nil {
		return err
	}
	f.mirror.mu.Lock()
	waiters := 0
	if n := f.mirror.nameLocked(text); n != nil {
		waiters = n.waiters()
	}
	f.mirror.mu.Unlock()
	if waiters >= maxWaiters {
		return refuse(cellv1.Reason_REASON_QUOTA, "%d wait for %.80q: more are not right", waiters, text)
	}
	if l := callerOf(ctx).limits; l == nil || waiters+near < l.Waiters {
		return nil // it has no more places than there are
	}
	return f.mayHave(ctx, callerOf(ctx), "places in this queue", func(l *limits) int64 { return int64(l.Waiters) },
		func(m *mirror, _ *usage) int64 { return int64(m.waitersOfLocked(text, callerOf(ctx).name)) }, 1)
}

// waitersOfLocked returns how many places a principal has in the queue of a name.
func (m *mirror) waitersOfLocked(text, principal string) (places int) {
	n := m.nameLocked(text)
	if n == nil {
		return 0
	}
	for _, e := range n.entries[n.holders:] {
		if e.session != nil && e.session.record.Load().Principal == principal {
			places++
		}
	}
	return places
}

// maxWatches is how many nodes a session may watch.
const maxWatches = 10_000

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
	n, there := f.mirror.nodes.Get(&node{path: path})
	maker, more := callerOf(ctx), int64(size)
	if there {
		maker, more = f.guard.named(n.acl.By), more-int64(n.size)
	}
	f.mirror.mu.Unlock()
	if !there {
		err := f.mayHave(ctx, maker, "nodes", func(l *limits) int64 { return int64(l.Nodes) },
			func(_ *mirror, u *usage) int64 { return int64(u.nodes) }, 1)
		if err != nil {
			return err
		}
	}
	if more <= 0 {
		return nil
	}
	return f.mayHave(ctx, maker, "bytes in nodes", func(l *limits) int64 { return l.Bytes },
		func(_ *mirror, u *usage) int64 { return u.bytes }, more)
}

// countCloserLocked counts a closer that is all that is left of a hold as a lock of its principal, or does not count
// it any more. Otherwise A could take name after name for a minimum of a day and give each back: A's sessions
// would have nothing, and the cell soon no room.
func (m *mirror) countCloserLocked(e *entry, counts bool) {
	switch {
	case e.Value.Principal == "" || counts == e.counted:
		return
	case counts:
		m.usageLocked(e.Value.Principal).closed++
	default:
		m.usageLocked(e.Value.Principal).closed--
	}
	e.counted = counts
}

// countLocked adds a node to what its maker has, or takes it away.
func (m *mirror) countLocked(n *node, sign int) {
	u := m.usageLocked(n.acl.By)
	u.nodes += sign
	u.bytes += int64(sign * n.size)
}
