// Package election lets processes elect one of them as leader, over any store of
// Holdfast.
//
//	e := election.New(locks, "scheduler", nil)
//	err := e.Do(ctx, "10.0.0.7:8080", func(ctx context.Context, l *election.Leadership) error {
//		return schedule(ctx, l.Token()) // ctx ends when the leadership can no longer be trusted
//	})
//
// A leadership is an exclusive lease whose note is the leader's value, an
// address for example, which others read with Leader or follow with Observe. All
// that is said of leases holds: at most one leadership is trusted at any instant
// (P1), its loss is neither silent nor late (P2), and whoever acts for the
// outside world should show the token, because a leader that stood still may not
// know yet that it has been replaced.
//
// Over etcd with the layout "stock" it is the same election as that of etcd's
// own package concurrency.
package election
