// Package bench measures locks beside their peers: other libraries on the same
// store, and the raw commands that no lock can do without, the floor.
//
//	make bench BENCH=Redis             # everything, about ten minutes
//	make bench BENCH=Redis/pair        # one workload
//	make bench BENCH=Etcd              # the same on etcd
//	make bench BENCH=Postgres ARGS='-timeout 30m' # and MariaDB, MySQL, SQLite
//
// Each measurement is a process of its own. The peers take turns within a
// repetition, so that what else the machine does hits all of them alike; a
// figure is the median of the repetitions, a ratio the median of the ratios
// within a repetition. HOLDFAST_BENCH_REPS sets how many there are (5),
// HOLDFAST_BENCH_WINDOW how long one measures (2s), HOLDFAST_BENCH_PEERS which peers
// take part, separated by semicolons (all).
//
// On one name what counts is owner changes: how often the lock passed from one
// goroutine to another. A lock that one goroutine takes again and again while
// all others starve is fast by any other measure. Every hold checks, in memory
// that all processes share, that nobody else is inside.
package bench
