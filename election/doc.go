// Package election lets processes elect one of them as leader, over any store of Holdfast.
//
//	e := election.New(locks, "scheduler", nil)
//	err := e.Do(ctx, "10.0.0.7:8080", func(ctx context.Context, l *election.Leadership) error {
//		return schedule(ctx, l.Token()) // ctx ends when the leadership can no longer be trusted
//	})
//
// A leadership is an exclusive lease. Its note is the leader's value, an address for example. Other
// processes read the value with Leader, or follow its changes with Observe. A leadership keeps the
// promises of leases: at most one leadership is trusted at any instant (P1), and its loss is neither
// silent nor late (P2).
//
// A leader that was paused for longer than its lease does not know at once that another has been elected.
// So a leader that changes something outside should pass its token on, and the other side should refuse
// old tokens: see package fence.
//
// Over etcd with the layout "stock" this is the same election as that of etcd's own package
// concurrency: both kinds of candidates take part in one election.
//
// Over ZooKeeper with hf.leader=latch or hf.leader=selector it is that of Curator's LeaderLatch or
// LeaderSelector, and the values are the ids of the participants.
package election
