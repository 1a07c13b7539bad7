// Package holdfast takes locks that many processes share, in the store that
// they share already: files of one host today, Redis, SQL databases and etcd to
// come, and, in one process, memory.
//
//	locks, err := holdfast.Open(ctx, "mem://orders")
//	if err != nil {
//		return err
//	}
//	defer locks.Close()
//
//	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
//		return ledger.Charge(ctx, lease.Token(), order) // ctx ends when the lock can no longer be trusted
//	})
//
// A [Client] opens one store. A [Lock] is a name and how to hold it: a mutex,
// one half of a read-write lock, some slots of a semaphore; [All] makes several
// one. A [Lease] is one hold on a lock: it is renewed in the background,
// until it is released or lost, and it tells its holder which.
//
// # What a lock in a store can promise, and what not
//
// A lease ends by the clock. A holder that stands still — paused, swapped out,
// suspended — may wake after its lease has ended and act beside the next
// holder, and no store can prevent that. Holdfast makes the window as small as
// it can be: a lease counts its time from before the request that took it, on a
// clock that runs on while the host sleeps, and [Lease.Err] reads that clock at
// every look. Where even that window must be closed, the resource itself must
// refuse who comes too late: every lease carries a fencing token, and package
// fence has the guards that check it.
//
// So use a lock for efficiency, to avoid doing work twice, as it is; and for
// correctness, where two holders would corrupt data, together with a guard.
//
// # How to use one
//
// [Lock.Do] is the shortest way: it acquires, runs a function under a context
// that ends with the lock, and releases. [Lock.Acquire] and [Lock.TryAcquire]
// return a [Lease] for everything else; each must be released.
//
// There are two contexts, for two things. That of Acquire bounds the wait. That
// of Do, or of [Lease.WithContext], bounds the work: hand it to everything that
// the lock protects.
//
// What Release and Do return matters: an error that is [ErrLost] says that the
// lock was lost before the end, so that what was done under it may have run
// beside another holder.
//
// A goroutine that is started under a holder's context counts as the holder: if
// it acquires the same name, it gets [ErrDeadlock], or, with Options.Reentrant,
// a lease on the same hold.
//
// # Promises
//
// The promises P1 to P11 that comments refer to are in docs/design.md. In short:
// at most one exclusive hold on a name is trusted at any instant (P1); a loss is
// never silent and never late (P2); tokens grow (P3); only the holder can
// release (P4); a dead holder's name opens again (P5); an acquire that fails
// leaves nothing behind (P6); nobody waits for a name that is free (P7), and
// waiters are served in order (P8); nothing leaks (P9); bad input is refused
// before any I/O (P10); a context ends waits and never holds (P11). What each store
// keeps of them when things go wrong is in docs/guarantees.md, and in [Caps] as
// data.
//
// # Stores
//
// A store's package registers its URL scheme when it is imported, as in
// database/sql, or makes a driver for [New]:
//
//	import _ "github.com/holdfastlock/holdfast/memlock"  // mem://name: this process
//	import _ "github.com/holdfastlock/holdfast/filelock" // file:///directory: this host
package holdfast
