// Package zk is a thin client of ZooKeeper's wire protocol: what locks need of it, and no more.
//
// A [Session] writes requests back to back and matches the answers, so that several operations
// take one round trip. It connects again by itself, sets its watches again, and says exactly what is
// known of each operation: done (with its zxid), refused (a [Code]), certainly not done
// ([ErrNotSent]), or unknown ([ErrConnectionLoss]). There are no locks here: see package zklock.
//
// Unless [Config.AnyServer] is set, a session is only at the leader. A server closes the connections
// of all its clients when its role changes. So a connection to a server that said "leader" on a
// second, later connection is to the leader for as long as it lives; a leader that was deposed
// meanwhile can answer reads and pings, and cannot commit a write.
package zk
