// Package bench is for those who work on Holdfast: it measures locks beside their peers, which
// are other libraries on the same store, and the floor, the raw commands without which there
// is no lock.
//
//	make bench BENCH=Redis             # everything, about ten minutes
//	make bench BENCH=Redis/pair        # one workload
//	make bench BENCH=Etcd              # the same on etcd
//	make bench BENCH=Postgres ARGS='-timeout 30m' # and MariaDB, MySQL, SQLite
//	make bench BENCH=Crowd/Redis       # many clients on one name; and Postgres, MariaDB, MySQL, Etcd, Files
//	make bench BENCH=Crowd/Redis/idle  # one workload of those: see below
//
// Each measurement is a process of its own. Each repetition measures all peers, one by one,
// so that other load of the machine affects all of them alike. A figure is the median of the
// repetitions, a ratio the median of the ratios within the repetitions. HOLDFAST_BENCH_REPS sets how many there are (5),
// HOLDFAST_BENCH_WINDOW how long one measures (2s), HOLDFAST_BENCH_PEERS which peers
// take part, separated by semicolons (all).
//
// On one name owner changes are counted: how often the lock passed from one goroutine to
// another. By any other measure a lock would be fast that one goroutine takes again and again
// while all others starve. Each hold checks, in memory that all processes share, that no
// other goroutine is in its critical section.
package bench
