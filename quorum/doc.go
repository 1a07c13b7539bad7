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
// A hold is a vote of more than half of the nodes. All are asked at the same time, each for at most
// Options.NodeTimeout, and a grant or a refusal is known as soon as a majority has given or refused it:
// a node that is slow or dead delays nobody. A hold is valid for its TTL, less the time that passed since
// before the first request was sent, and less the drift of clocks: a hundredth and 2 ms. An attempt
// that fails takes its votes back, also where the answer was lost, and so does a release, in the
// background until each node has confirmed it or the TTL is over. A renewal needs a majority too, and
// restores votes that nodes have lost.
//
// What a quorum cannot do: waiters have no queue, so they poll, are served in no order, and may starve;
// there are no semaphores, because five nodes with two slots each admit three majorities; and the locks
// have no fencing tokens.
//
// # Nodes that forget
//
// A node that comes back without its memory may have forgotten a vote, so that two holders would have a
// majority each. So it does not count until every hold is over that could rest on such a vote: see
// Options.MaxTTL and Init. A driver that may forget, by its Guarantees, and is no driver.Voter is refused,
// unless Options.Durable is set: Redis behind sentinels, or in a cluster, is one.
//
// All programs that use a lock must give the same nodes and the same options.
package quorum
