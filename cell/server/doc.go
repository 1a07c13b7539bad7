// Package server is a member of a cell: the lock service that "holdfast serve" runs.
//
// A member is a process with two halves. One is etcd, embedded, which is the cell's replicated log
// and its disk. The other is the front: the API for clients. What counts is in etcd and nothing is
// in a front alone, so the death of a member costs its clients a reconnection, and no session, no
// lock and no place in a queue. Every member serves every client.
//
// The way of a request through the front, and the file of each part:
//
//	member.go     a member starts, listens and stops; config.go, listen.go, metrics.go
//	etcd.go       its etcd, also when another member leads
//	gate.go       what each call comes through: how often which may be made, what its fields may be, why it fails
//	principals.go who calls, and who may do what; quota.go: how much, how often, and while there is space
//	mirror.go     what etcd has, kept in memory by a watch; entry.go: names, and who holds them
//	sessions.go   sessions: opened, closed, listed, killed; what a parked call is told; what they leave
//	keepalive.go  the parked call
//	expiry.go     which member hears from a session's client; sessions and places end, and what closes a name then
//	acquire.go    a lock is taken, or a place in its queue
//	release.go    locks are given back or changed, and requests withdrawn
//	operator.go   what operators see, how they break a hold, and sequencers
//	operate.go    members, backups, and a cell made of one
//	files.go      small files; nodes.go: those of the mirror, and events
//
// Locks are those of package etcdlock/table, in the same etcd: a key for each hold and each place. None is on a lease of
// etcd's, so etcd never ends one by itself: expiry.go says who does.
package server
