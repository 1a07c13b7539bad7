// Package zklock keeps locks in ZooKeeper, version 3.5.3 or newer, in the layout of Apache Curator 5.5 and newer: a
// Go service and a Java service with Curator share one lock. Import it for its URL schemes, or call [New]:
//
//	import _ "github.com/holdfastlock/holdfast/zklock"
//
//	locks, err := holdfast.Open(ctx, "zk://10.0.0.1,10.0.0.2,10.0.0.3/app/locks")
//
// The URL is zk://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, or zks:// for TLS; a host without a port has
// 2181. A name is the path PREFIX/NAME, as Curator takes it. User and password are those of the scheme
// digest. Parameters, all optional:
//
//	hf.acl     creator (default with a user): only the user may read and change what it makes; open: everybody
//	hf.leader  latch or selector: mutexes are those of Curator's leader elections
//	hf.ca      zks: a file with the certificates to trust, instead of the system's
//	hf.cert    zks: a file with the client's certificate, with hf.key
//	hf.key     zks: a file with its private key
//	hf.retry   how often and until when an acquire goes on after a lost connection, within its own time: see below
//
// The files are read again for each connection that is made.
//
// # What is what
//
//	Curator                        here
//	InterProcessMutex              Client.Mutex
//	InterProcessReadWriteLock      Client.RWMutex
//	InterProcessSemaphoreV2        Client.Semaphore(name, n)
//	InterProcessSemaphoreMutex     Client.Semaphore(name, 1)
//	InterProcessMultiLock          holdfast.All
//	Revoker.attemptRevoke          [Revoke]
//	makeRevocable                  [Config.OnRevoke]
//	LeaderLatch                    package election, with hf.leader=latch
//	LeaderSelector                 package election, with hf.leader=selector
//	RetryPolicy                    hf.retry, Config.Retry
//	container parents              the same; made when they are missing, removed by the server
//	protected create (GUID)        the same; the GUID is made of the owner, so it is found again
//
// Go's locks exclude each other whichever of Mutex and RWMutex takes them; Java's InterProcessMutex and
// InterProcessReadWriteLock on one path do not see each other, so use the same kind on both sides. A name that is in
// use as a semaphore is refused as a mutex with ErrMismatch, and the other way round. A semaphore's number of slots is
// the data of its node "leases", which Curator leaves empty; Java's clients must be given the same number. Curator
// takes several permits one by one, so two of Java's clients may each wait for what the other has. Curator's mutex
// takes every child of its path for a waiter: where Java uses the lock "orders", do not use "orders/42" too.
//
// Names are refused that Curator or ZooKeeper refuses: with the elements "." and "..", the characters U+0000 to
// U+001F, U+007F to U+009F, U+E000 to U+F8FF, and U+FFF0 and above. So are those that would be confused with nodes:
// with the element ".holdfast", with "locks" or "leases" as the last of several elements, and with elements that end
// as nodes of locks do, such as "lock-0000000001".
//
// # Retries
//
// An acquire whose connection is lost is made again, in the same session: a node that the first request has made is
// found by its GUID. Package holdfast repeats renewals and releases. Curator's policies, by name, are the values of
// hf.retry; whatever they say, a call ends with its context, or after 5 s.
//
//	exponential:BASE:N[:LONGEST]  ExponentialBackoffRetry, BoundedExponentialBackoffRetry; exponential:50ms:5 is the default
//	once:PAUSE, times:N:PAUSE     RetryOneTime, RetryNTimes
//	elapsed:LONGEST:PAUSE         RetryUntilElapsed
//	forever:PAUSE                 RetryForever
//	none                          the caller is told at once
//
// # What a hold is
//
// A hold, or a place in the queue, is an ephemeral node; of a name's nodes the one with the lowest number comes first,
// where 2^31-1 is followed by -2^31. The fencing token is the node's czxid. The node's data is the note; a hold that
// was downgraded has the writer's token in a second line, "token N".
//
// All holds of a client whose TTL and lock-delay need the same number of seconds are on one session, at the leader.
// It stays open until the client is closed. One write of the session's own node, PREFIX/.holdfast/sessions/ID, renews
// them all, and they are trusted from the sending of the last write that was answered. A session lasts as long as the
// server admits: Caps.MinTTL is the least; a longer TTL is granted as the longest, and a lock-delay for which there
// is no room is refused. Where the leader takes no clients (leaderServes=no), or srvr is not in
// 4lw.commands.whitelist, any server will do, and Guarantees say what can break then. New decides that: all servers
// must answer.
//
// PREFIX/.holdfast is a node that stays: its data tells this store from others (Caps.Store). A client needs three
// connections at most for each session, two of which ask for a moment who leads.
//
// A client that has died keeps its places until its session is over: that is Curator's nature. Caps.Poll is half of the
// longest session, so that two polls cover it; waiters are woken by watches, whatever the poll. Minimum holds are
// refused with ErrUnsupported: nothing in the layout could keep one. Options.Unfair changes nothing.
//
// In the code, take.go asks for a hold (by kind: mutex.go, semaphore.go), wait.go waits for it, renew.go and release.go
// are the rest of its life. keeper.go is the session that holds are on, owner.go what a client remembers of one,
// layout.go the nodes. Package internal/zksession decides what answers say of a session.
package zklock
