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
	// A token is the create revision of the hold's key times 1,024, plus the number of
	// times that the hold has been handed over inside its client's process. Versions of
	// this package with another format of the keys' values do not share a name: a
	// client that finds a key of another version gets an error that is ErrMismatch.
	Escaped = table.Escaped
	// Stock is that of etcd's own concurrency.Mutex, of "etcdctl lock" and of the
	// v3lock service, all of which and this package keep one another out:
	//
	//	PREFIX/NAME/CLIENT.N             a hold or a place in the queue; theirs end with the lease
	//	PREFIX//gone/OWNER               as above; no name has two slashes together
	//	PREFIX//broken/CLIENT/REVISION
	//
	// A token is the create revision of the hold's key, as etcd's own programs have it:
	// one guard serves them all. So a grant has one token, and no hold is handed over
	// inside a process.
	//
	// The value of an exclusive hold without a lock-delay is its note, so that
	// package election and etcd's own concurrency.Election are one election. So
	// nobody but the client that put it knows its owner: Inspect shows the key's end
	// instead, and other clients cannot withdraw it by its owner.
	// Without a prefix the slash before the name is missing too. In this layout
	// their locks on "orders" wait for the holder of "orders/42": only they can
	// mend that.
	Stock = table.Stock
)

// DefaultPrefix is what keys begin with in the layout Escaped; in Stock it is "".
const DefaultPrefix = table.DefaultPrefix
