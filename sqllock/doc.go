// Package sqllock keeps locks in a SQL database: PostgreSQL, MariaDB, MySQL 8 or SQLite.
//
// It works over a *sql.DB and imports no SQL driver. To open a lock by its URL, import one of the packages beside
// it:
//
//	import _ "github.com/holdfastlock/holdfast/sqllock/pgconn"
//
//	locks, err := holdfast.Open(ctx, "postgres://localhost/app")
//
// To use a pool that you have, see their functions New.
//
// Each name is one row, and each place in its queue another, in a table of its own. A step on a name locks the row,
// reads it with the first places, decides as package internal/record says, and writes what has changed: two round
// trips and one commit. A release hands the name over to the first waiter in the same commit. The server ends the
// transaction of a client that stops in the middle within a second.
//
// A new place is inserted under a shared lock of the row, so a step sees every place or the place's owner sees what
// the step has done. A waiter confirms its place without touching the row.
//
// An exclusive hold for which nobody waits is taken, renewed and released by one statement each. Where others wait, a
// change of owner is two round trips: one takes the place, and tells what is ahead; the other, the release, hands the
// name over in its commit. In PostgreSQL each is one statement.
//
// A release wakes a waiter over the same pool by itself. PostgreSQL tells others by NOTIFY; all drivers of a process
// listen on one connection. In MariaDB and MySQL a waiter blocks in GET_LOCK until the client before it lets go: see
// bells. Elsewhere, and behind a pooler, each client polls: one statement asks for all its waiters, less often the
// longer nothing changes and the more others are ahead.
// Watches are polled for in all databases.
//
// # Connections
//
// The drivers over a pool keep one of its connections for renewals. So neither a busy client nor an application that
// shares the pool can make a healthy lease end. A release uses it while the application has all others. It is given
// back when the last driver is closed. Allow the pool two connections or more: a pool of SetMaxOpenConns(1) has none to
// spare, and renewals wait for the statement that is under way, and for the application.
//
// Opening a connection ends with the context of the request that needs it, so let a context last longer than that
// takes.
//
// A connection that is in a transaction after a request is closed, and the request fails: a hold that is not
// committed is never reported as held. An application that gives a connection back in the middle of a transaction
// loses what it did there.
package sqllock
