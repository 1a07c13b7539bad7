// Package demo shows what locks are for. Nothing is staged: real processes sell from a real
// database, and what went wrong is counted in it afterwards. The database is in PostgreSQL or
// MySQL if the locks are there, else it is a file of SQLite.
//
// [Run] is the flash sale. Three order services, each a process of its own, sell an item of which
// 3 are left to 100 users, one each. Every fourth user clicks twice. A service does what such
// services do: it reads the stock, takes the payment (a few milliseconds), writes the order and
// the new stock, prepares the confirmation (ten to twenty milliseconds), and commits. The
// strategies differ only in what keeps two sales apart, except that the last three, which decide
// by one statement, can take the payment after the commit. See [Strategies].
//
// In PostgreSQL and MySQL each run has a schema of its own, with a random name that begins with
// holdfast_demo_. It is dropped afterwards. The database's user needs the right to create a
// schema. A demonstration that is killed may leave one behind.
//
// [Cron] is a job that three replicas, whose clocks differ a little, should run once per tick.
//
// The processes are the calling program itself, started again. Its main must begin with
//
//	if demo.IsChild() {
//		os.Exit(demo.Child())
//	}
//
// and so must TestMain in a test.
package demo
