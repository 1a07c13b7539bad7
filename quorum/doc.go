// Package quorum keeps locks in a majority of independent stores: Redlock, for nodes that share
// nothing.
//
//	d, err := quorum.New([]driver.Driver{a, b, c}, nil) // drivers of three stores
//	locks, err := holdfast.New(d, nil)
//
// A program that imports rueidisconn or goredisconn opens five Redis servers by one URL, with one
// user, password and database for all of them:
//
//	locks, err := holdfast.Open(ctx, "redlock://a,b,c,d,e")
//
// A hold is a vote of more than half of the nodes. All are asked at the same time, and a grant or a refusal
// is known as soon as a majority has given or refused it: a node that is slow or dead delays nobody. A hold is
// valid for its TTL, less the time that passed since before the first request was sent, and less the drift of
// clocks: a hundredth and 2 ms. A renewal needs a majority too, and restores votes that nodes have lost.
//
// Waiters have no queue, so they poll, are served in no order, and may starve. There are no semaphores,
// because five nodes with two slots each admit three majorities.
//
// Locks of nodes that forget nothing (Options.Durable) have fencing tokens: the highest that the nodes of a
// majority gave, once a majority has it on record (driver.Raiser). A node that comes back without its memory
// may have forgotten a vote. So it does not count until every hold is over that could rest on such a vote
// (Options.MaxTTL, Init). A driver that may forget, by its Guarantees, and is no driver.Voter is refused.
//
// docs/stores/redlock.md tells how it works, and docs/adr/0012-redlock.md why. Package internal/vote decides.
// All programs that use a lock must give the same nodes and the same options.
package quorum
