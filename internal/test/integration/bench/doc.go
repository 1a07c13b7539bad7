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
//
// # Crowds
//
// In a crowd each worker has a client of its own, with connections of its own (in databases a pool
// of two), and a process has at most fifty clients. HOLDFAST_BENCH_CROWDS sets how many clients
// there are, separated by commas (4,64). The workloads clients4, clients64 and so on count owner
// changes: for a window, and then until each client could have had ten turns, but for ten windows at
// most. The others are:
//
//   - idle: as many clients as the greatest crowd has wait for a name that is held, then each gets it
//     once.
//   - pool, in databases: 256 clients ask once each, those of a process over 2 connections.
//   - impatience: 64 clients that give up after 10 ms and ask again, beside patient ones.
//   - impatience1000: the same with 1,000 goroutines of one client, which hold the name for 2 ms.
//   - processes: as many programs as the greatest crowd has clients, but at most 200, are started
//     together. Each is holdfast run.
//
// Here HOLDFAST_BENCH_REPS is 3 and HOLDFAST_BENCH_WINDOW is 1s unless they are set.
// HOLDFAST_BENCH_CURVE=now keeps the points of the curve in docs/crowds.csv, in place of those of the
// same name, and draws docs/crowds.svg. What was measured before a change has another name there,
// such as before.
//
//	HOLDFAST_BENCH_CURVE=now HOLDFAST_BENCH_CROWDS=4,16,64,256,1000 make bench BENCH=Crowd/./clients ARGS='-timeout 60m'
//
// # The guide
//
// Speed and Crash measure Holdfast alone, for docs/choose.md. Speed runs all stores, one after the
// other, in each repetition: pairs of one goroutine and of 64, and hand-overs between eight processes. Crash kills ten
// processes that hold a name each, for TTLs from 1 s to 30 s, which takes two minutes for each store.
// HOLDFAST_BENCH_KEEP=1 keeps the figures in docs/speed.csv and docs/crash.csv. TestGuideIsCurrent -draw
// then draws docs/crash.svg and writes the tables of the guide.
//
//	HOLDFAST_BENCH_KEEP=1 make bench BENCH='Speed$' ARGS='-timeout 20m'
//	HOLDFAST_BENCH_KEEP=1 make bench BENCH='Crash/redis$' ARGS='-timeout 20m'
package bench
