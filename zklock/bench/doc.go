// Package bench is for those who work on Holdfast: it measures zklock beside its peers, in one run on one
// server of ZooKeeper: go-zookeeper's Lock, and Curator's InterProcessMutex in a Java machine that is warm.
//
//	make bench BENCH=ZooKeeper                  # everything, about six minutes
//	make bench BENCH='ZooKeeper/forced/alone'   # one case
//
// The cases are forced and unforced, each with alone, names-64, crowd-16 and crowd-64.
//
// Each client has a session and a connection of its own, as programs have, and the same session's length. In
// a burst each client takes and releases once before the clock starts, then all start at the same instant and
// go on until the same one. Pairs that end later do not count. The ways take turns, so that other load of the
// machine affects all of them alike: a ratio is of two bursts of one round. Figures are medians of the
// rounds, with their range.
//
// A server forces each transaction to its disk before it answers, as it does by default (forced), or does not
// (unforced), which leaves the costs of the clients and of the server's processor.
//
// HOLDFAST_BENCH_REPS sets how many rounds count (7), HOLDFAST_BENCH_WINDOW how long a burst is (1s),
// HOLDFAST_BENCH_PEERS which ways take part, separated by semicolons (all).
package bench
