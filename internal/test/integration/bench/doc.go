// Package bench is for those who work on Holdfast: it measures locks beside their peers, which
// are other libraries on the same store, and the floor, the raw commands without which there
// is no lock.
//
//	make bench BENCH=Redis                       # everything, some minutes; and Etcd, Cell$, Postgres, MariaDB, MySQL, SQLite, Files
//	make bench BENCH=Redis/pair                  # one workload
//	make bench BENCH='Crowd/Redis/clients64$'    # 64 clients on one name; and 4, 16, 256, 1000
//
// Each measurement uses processes of its own. Each repetition measures all peers, one by one,
// so that other load of the machine affects all of them alike. A figure is the median of the
// repetitions, a ratio the median of the ratios within the repetitions. HOLDFAST_BENCH_REPS sets how many
// there are (5; 3 of crowds), HOLDFAST_BENCH_WINDOW how long one measures (2s; 1s of crowds),
// HOLDFAST_BENCH_PEERS which peers take part, separated by semicolons (all), HOLDFAST_BENCH_BUSY how many processes
// keep a processor busy meanwhile (0): a caller alone is little but wake-ups, which depend on that.
//
// On one name owner changes are counted: how often the lock passed from one goroutine to
// another. By any other measure a lock would be fast that one goroutine takes again and again
// while all others starve. Each hold checks, in memory that all processes share, that no
// other goroutine is in its critical section.
//
// # Crowds
//
// In a crowd each worker has a client of its own, with connections of its own, and a process has at
// most fifty clients. Owner changes are counted for a window, and then until each client could have had ten turns,
// but for ten windows at most.
//
// # The documentation's figures
//
// Speed and Crash print the tables of docs/choose.md. Speed measures all stores, one after the other, in each
// repetition: pairs of one goroutine and of 64, and hand-overs between eight processes. Crash kills ten processes
// that hold a name each, for TTLs from 1 s to 30 s, which takes two minutes for each store.
//
//	make bench BENCH='Speed$' ARGS='-timeout 20m'
//	make bench BENCH='Crash/redis$' ARGS='-timeout 20m'
package bench
