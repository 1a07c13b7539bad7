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
// A hold is a vote of more than half of the nodes. All are asked at the same time, each for at most
// Options.NodeTimeout, and a grant or a refusal is known as soon as a majority has given or refused it:
// a node that is slow or dead delays nobody. A hold is valid for its TTL, less the time that passed since
// before the first request was sent, and less the drift of clocks: a hundredth and 2 ms. An attempt
// that fails takes its votes back, also where the answer was lost, and so does a release, in the
// background until each node has confirmed it or the TTL is over. A renewal needs a majority too, and
// restores votes that nodes have lost.
//
// What a quorum cannot do: waiters have no queue, so they poll, are served in no order, and may starve;
// and there are no semaphores, because five nodes with two slots each admit three majorities.
//
// # Fencing tokens
//
// Locks have fencing tokens if the nodes forget nothing (Options.Durable), and each has tokens of its own that
// can be raised (vote.Raiser: Redis in Holdfast's own layout). Each vote brings the node's next token. The
// highest of a majority becomes the token of the grant, which counts only when a majority has it on record:
// the next majority has a node in common with that one, and brings a higher one. So a lock takes two round
// trips instead of one. Nodes that may forget have no tokens: suppose that A's token is 9, by nodes 1 and 2 of
// three, and 2 forgets it. However long 2 is kept away, B's token by nodes 2 and 3 may be 8.
//
// # Nodes that forget
//
// A node that comes back without its memory may have forgotten a vote, so that two holders would have a
// majority each. So it does not count until every hold is over that could rest on such a vote: see
// Options.MaxTTL and Init. A driver that may forget, by its Guarantees, and is no vote.Voter is refused,
// unless Options.Durable is set: Redis behind sentinels, or in a cluster, is one.
//
// All programs that use a lock must give the same nodes and the same options.
package quorum
