// Package holdfast takes locks that many processes share, in the store that they share already:
// Redis, etcd, ZooKeeper, PostgreSQL, MySQL, MariaDB, an SQLite file, the files of one host or,
// inside one process, memory.
//
//	locks, err := holdfast.Open(ctx, "mem://orders")
//	if err != nil {
//		return err
//	}
//	defer locks.Close()
//
//	lock := locks.Mutex("orders/42", nil)
//	err = lock.Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
//		// ctx ends when the lock can no longer be trusted.
//		return ledger.Charge(ctx, lease.Token(), order)
//	})
//
// A [Client] opens one store. A [Lock] is a name and how to hold it: a mutex, one half of a
// read-write lock, or some slots of a semaphore. [All] makes several locks one. A [Lease] is one
// hold on a lock. The client renews it in the background until it is released or lost, and the
// lease tells its holder which.
//
// # What a lock in a store can promise, and what not
//
// A lease ends by the clock. A holder that is paused, swapped out or suspended may wake after its lease
// has ended, and act beside the next holder. No store can prevent that. Holdfast makes this window as
// small as it can be: a lease counts its time from before the request that took it, on a clock that
// runs on while the host sleeps, and [Lease.Err] reads that clock at every call. To close even this
// window the resource itself must refuse a holder that comes too late. For that every lease carries a
// fencing token, and package fence has the
// guards that check it.
//
// So use a lock alone for efficiency, to avoid doing work twice. For correctness, where two holders
// would corrupt data, use it together with a guard.
//
// # How to use one
//
// [Lock.Do] is the shortest way: it acquires the lock, runs a function under a context that ends
// with the lock, and releases it. For everything else [Lock.Acquire] and [Lock.TryAcquire] return a
// [Lease], which you must release.
//
// There are two contexts, for two things. The context of Acquire bounds the wait. The context of
// Do, or of [Lease.WithContext], bounds the work: hand it to everything that the lock protects.
//
// Check the errors of Release and Do. [ErrLost] says that the lock was lost before the end: the
// work may have run beside another holder.
//
// A goroutine that is started under a holder's context counts as the holder. If it acquires the
// same name, it gets [ErrDeadlock], or, with Options.Reentrant, a lease on the same hold.
//
// # TTL and crashes
//
// The store keeps a lock for its TTL: 30 s unless [Options], [ClientOptions] or the parameter hf.ttl
// of the URL say otherwise. The client renews it after each third of that. So a process that crashes
// blocks its names until between two thirds of the TTL and the whole TTL have passed (with files it
// frees them at once), and a process that the store does not answer stops trusting its lease a little
// before the TTL is over. A short TTL frees sooner and renews more often; a longer one survives longer
// silence of the store.
//
// # Why there is no sync.Locker
//
// Lock and Unlock of [sync.Locker] return nothing. A lock in a store can fail to be acquired, because
// the store does not answer; it can be lost while it is held; and its release can fail, or tell that
// it was lost. A Locker would have to panic or to hide all three. It has no context to end the wait
// either, and nowhere to put the token. [Lock.Do] is as short.
//
// # Promises
//
// Comments refer to the promises P1 to P11 of docs/design.md. In short: at most one exclusive hold
// on a name is trusted at any instant (P1); a loss is never silent and never late (P2); tokens grow
// (P3); only the holder can release (P4); a dead holder's name opens again (P5); an acquire that
// fails leaves nothing behind (P6); a free name does not keep its waiters waiting (P7); waiters are
// served in order (P8); nothing leaks (P9); bad input is refused before any I/O (P10); a context
// ends a wait and never a hold (P11). docs/guarantees.md says what each store keeps of them when
// things go wrong; [Caps] has the same as data.
//
// # Stores
//
// The package of a store registers its URL scheme when it is imported, as in database/sql, or makes
// a driver for [New]:
//
//	import _ "github.com/holdfastlock/holdfast/memlock"            // mem://name: this process
//	import _ "github.com/holdfastlock/holdfast/filelock"           // file:///directory: this host
//	import _ "github.com/holdfastlock/holdfast/etcdlock"           // etcd://host
//	import _ "github.com/holdfastlock/holdfast/zklock"             // zk://host
//	import _ "github.com/holdfastlock/holdfast/celllock"           // cell://host
//	import _ "github.com/holdfastlock/holdfast/redislock"          // redis://host
//	                                                               // redis+sentinel://host,host/primary
//	                                                               // redis+cluster://host,host
//	                                                               // redlock://host,host,host
//	import _ "github.com/holdfastlock/holdfast/sqllock/pgconn"     // postgres://host/database
//	import _ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"  // mysql://host/database
//	import _ "github.com/holdfastlock/holdfast/sqllock/sqliteconn" // sqlite:///file
package holdfast
