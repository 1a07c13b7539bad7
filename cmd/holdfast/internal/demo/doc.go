// Package demo shows what locks are for, with nothing staged: real processes
// sell from a real database (that of the store, if the locks are in PostgreSQL or
// MySQL, else one of SQLite), and what went wrong is counted in it afterwards.
//
// [Run] is the flash sale. Three order services, each a process of its own, sell
// an item of which 3 are left to 100 users, one each; every fourth user clicks
// twice. A service does what such services do: it reads whether there is stock,
// takes the payment (a few milliseconds), writes the order and the new stock,
// prepares the confirmation (ten to twenty), and commits. The strategies differ in
// what keeps two sales from mixing, and in nothing else; only the last three, which
// decide by one statement, can take the payment after the commit. See [Strategies].
//
// In PostgreSQL and MySQL each run has a schema of its own, named holdfast_demo_ and
// something random, which is dropped afterwards; the user needs the right to create one.
// A demonstration that is killed may leave one behind.
//
// [Cron] is a job that three replicas, whose clocks differ a little, are to run
// once per tick.
//
// The processes are the calling program itself, started again: its main must
// begin with
//
//	if demo.IsChild() {
//		os.Exit(demo.Child())
//	}
//
// and so must the TestMain of a test.
package demo
