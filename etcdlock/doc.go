// Package etcdlock keeps locks in etcd, version 3.4 or newer; before 3.4.38, 3.5.23 and 3.6.5 etcd itself may end a
// lease too early, or say that it is kept alive when it has ended ("holdfast doctor" tells). Import it for its URL
// schemes, or give [New] a client of your own:
//
//	import _ "github.com/holdfastlock/holdfast/etcdlock"
//
//	locks, err := holdfast.Open(ctx, "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")
//
// The URL is etcd://USER:PASSWORD@HOST:PORT,HOST:PORT/PREFIX, or etcds:// for TLS;
// a host without a port has 2379, and if any has a port the last one must. Parameters, all optional:
//
//	hf.layout  escaped or stock: see the constants
//	hf.ca      etcds: a file with the certificates to trust, instead of the system's
//	hf.cert    etcds: a file with the client's certificate, with hf.key
//	hf.key     etcds: a file with its private key
//
// The files are read again for each connection that is made.
//
// A hold, or a place in the queue, is a key; of a name's keys the one that was created first comes first, as in
// etcd's own concurrency package. The fencing token is the key's create revision: plain in the layout [Stock], in
// [Escaped] times 1,024 plus the number of times that the hold was handed over inside its process. Keys are on leases
// of etcd, one for all holds of a client whose TTLs need the same number of seconds, and a short one for places: one
// request keeps ten thousand holds alive. See the driver's Guarantees for what remains of its promises when things go
// wrong.
//
// A client opened by URL has two connections to each member: one for renewals and
// releases, and one for everything else. It has one stream on which it keeps its leases alive, and one
// of watches: with a password each connection and each stream costs the server a check of it.
package etcdlock

import "github.com/holdfastlock/holdfast/etcdlock/table"

// The layouts.
const (
	// Escaped, the default: a slash in a name is escaped, so that "orders" and
	// "orders/42" have nothing to do with one another.
	//
	//	PREFIX/lock/NAME/CLIENT.N      a hold or a place in the queue
	//	PREFIX/gone/OWNER              a request that was withdrawn
	//	PREFIX/broken/CLIENT/REVISION  a hold that an operator broke
	//
	// A token is the create revision of the hold's key times 1,024, plus the number of times that the hold has been
	// handed over inside its client's process. Versions of this package with another format of the keys' values do
	// not share a name: a client that finds a key of another version gets an error that is ErrMismatch.
	Escaped = table.Escaped
	// Stock is that of etcd's own concurrency.Mutex, of "etcdctl lock" and of the
	// v3lock service, all of which and this package keep one another out:
	//
	//	PREFIX/NAME/CLIENT.N             a hold or a place in the queue; theirs end with the lease
	//	PREFIX//gone/OWNER               as above; no name has two slashes together
	//	PREFIX//broken/CLIENT/REVISION
	//
	// A token is the create revision of the hold's key, as etcd's own programs have it: one guard serves them all. So
	// a grant has one token, and no hold is handed over inside a process.
	//
	// The value of an exclusive hold without a lock-delay is its note, so that package election and etcd's own
	// concurrency.Election are one election. So nobody but the client that put it knows its owner: Inspect shows the
	// key's end instead, and other clients cannot withdraw it by its owner. Without a prefix the slash before the
	// name is missing too. In this layout their locks on "orders" wait for the holder of "orders/42": only they can
	// mend that. A TryAcquire of "orders" may be refused while "orders/42" is taken and released all the time.
	Stock = table.Stock
)

// DefaultPrefix is what keys begin with in the layout Escaped; in Stock it is "".
const DefaultPrefix = table.DefaultPrefix
