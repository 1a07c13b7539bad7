// Package quorum keeps locks in a majority of independent stores: Redlock, for nodes that share
// nothing.
//
//	d, err := quorum.New([]driver.Driver{a, b, c}, nil) // drivers of three stores
//	locks, err := holdfast.New(d, nil)
//
// A program that imports package redislock opens five Redis servers by one URL, with one
// user, password and database for all of them:
//
//	locks, err := holdfast.Open(ctx, "redlock://a,b,c,d,e")
//
// A hold is a vote of more than half of the nodes. All are asked at the same time, and a node that is slow or
// dead delays nobody. A hold is valid for its TTL, less the time that passed since before the first request was
// sent, and less the drift of clocks: a hundredth and 2 ms. Nodes that have lost their votes are asked for them
// again after a renewal.
//
// Waiters have no queue, so they poll, are served in no order, and may starve. There are no semaphores,
// because five nodes with two slots each admit three majorities. A node that may have forgotten votes gives none until
// they have ended; Options.Durable tells of nodes that forget nothing, and of fencing tokens. All programs that use a
// lock must give the same nodes and the same options.
//
// Package internal/vote decides, and docs/adr/0012-redlock.md says why.
package quorum
