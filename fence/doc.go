// Package fence guards a resource with fencing tokens: the half of a lock that
// stands at the resource.
//
// Every lock that ends by itself is advisory. A holder that was paused, or
// whose packets were late, may act after its lock has passed to another, and
// no check that it makes itself can prevent that. The resource can: each hold
// brings a token that grows from one hold to the next, and the resource refuses
// a token when a newer one has been there before.
//
// The package has one guard for each place where a resource can stand:
//
//   - [Gate], and [Gates] by name, for what lives in this process;
//   - [Dialect], for rows of a PostgreSQL, MySQL, MariaDB or SQLite database,
//     inside the transaction that does the work;
//   - [Redis], for data in Redis, inside the script that does the work;
//   - [Handler], at the door of an HTTP service.
//
// # The rules
//
// Admit at the first touch, reads included. A holder that reads, is paused,
// and writes what it computed, loses an update if only writes are guarded: its
// successor's read leaves no mark, so the old token still counts as the newest.
// (Found by exhaustive search; the model is among this package's tests.)
//
// Admission and the work that it admits are one step. Between a check and a
// write that follows it there is room for a newer holder. [Gate.Do], a
// database transaction and a script in Redis make one step of them; a door alone
// does not.
//
// A shared hold only reads. Shared holds exist side by side, so the guard
// admits one after another in any order and cannot keep two of them from
// overwriting each other.
//
// A fence keeps old work from mixing with new. It does not finish what a dead
// holder left half done: work of several steps must be one transaction, or be
// such that the next holder can mend it.
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
// guarded by one lock name, in one store. Moving to another store, or losing
// the store's memory where its tokens do not survive that, may leave every new
// token below the marks. They then refuse everyone until an operator, with
// nobody at work, starts the process of a [Gate] again or deletes the row of
// the table of marks, or the fields of the hash in Redis.
//
// The idea of a sequencer that the resource checks is that of the Chubby paper
// (Burrows, OSDI 2006, section 2.4).
package fence
