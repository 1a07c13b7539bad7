// Package fence guards a resource with fencing tokens. It runs where the resource is.
//
// Every lock that ends by itself is advisory. A holder that was paused, or
// whose packets were late, may act after its lock has passed to another, and
// no check that it makes itself can prevent that. The resource can: each hold
// has a higher token than the hold before, and the resource refuses a token
// after it has seen a newer one.
//
// The package has one guard for each place where a resource can be:
//
//   - [Gate], and [Gates] by name, for resources in this process;
//   - [AdmitTx], for rows of a PostgreSQL, MySQL, MariaDB or SQLite database,
//     inside the transaction that does the work;
//   - [Redis], for data in Redis, inside the script that does the work;
//   - [Handler], in front of an HTTP service; package grpcfence, a module of its
//     own, in front of a gRPC service; and [Guard], which both are made of, where
//     requests come by another protocol.
//
// # The rules
//
// Admit at the first touch, reads included. A holder that reads, is paused,
// and writes what it computed, loses an update if only writes are guarded: its
// successor's read leaves no mark, so the old token still counts as the newest.
// (Found by exhaustive search; the model is among this package's tests.)
//
// Make admission and the work that it admits one step: between a check and the
// write that follows it a newer holder may come. [Gate.Do], a database
// transaction and a script in Redis make one step of them; [Handler] alone does
// not.
//
// A shared hold only reads. Several shared holds exist at the same time, so the
// guard admits them in any order and cannot keep two of them from overwriting
// each other's data.
//
// A fence keeps old work from mixing with new. It does not finish work that a
// dead holder left half done: work of several steps must be one transaction, or
// such that the next holder can repair it.
//
// # The two marks
//
// A guard remembers two tokens of a resource: the highest exclusive and the
// highest shared one that it has admitted. An exclusive token must not be below
// either of them; a shared one must not be below the exclusive mark, but may be
// below other shared ones, which are held at the same time. The same token is
// admitted any number of times. Marks never go down.
//
// The marks rest on promise P3: of a resource's lock, the tokens of all holds,
// exclusive and shared, come from one sequence. One resource is therefore
// guarded by one lock name, in one store. After a move to another store, or
// after a loss of the store's data that its tokens do not survive, every new
// token may be below the marks. The guard then refuses everyone until an
// operator, while nobody works, restarts the process of a [Gate], deletes the
// row of the table of marks, or deletes the fields of the hash in Redis.
//
// A sequencer that the resource checks is an idea of the Chubby paper (Burrows,
// OSDI 2006, section 2.4).
package fence
