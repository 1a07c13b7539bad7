// Package server is a member of a cell: the lock service that "holdfast serve" runs.
//
// A member is a process with two halves. One is etcd, embedded, which is the cell's replicated log
// and its disk. The other is the front: the API for clients. What counts is in etcd and nothing is
// in a front alone, so the death of a member costs its clients a reconnection, and no session, no
// lock and no place in a queue. Every member serves every client.
//
// The way of a request through the front, and the file of each part:
//
//	member.go     a member starts, listens and stops
//	etcd.go       its etcd, also when another member leads
//	listen.go     its listener; gate.go: what each call comes through; guard.go: who calls;
//	              calls.go: how often which call may be made, and what its fields may be
//	mirror.go     what etcd has, kept in memory by a watch: sessions, names, who holds them
//	session.go    a session of the mirror, and what its parked call is told
//	sessions.go   sessions are opened, closed, listed and killed, and what they leave is removed
//	keepalive.go  the parked call
//	home.go       which member hears from a session's client, and that members live
//	expiry.go     sessions and places end, and what closes a name after that
//	acquire.go    a lock is taken, or a place in its queue
//	release.go    locks are given back or changed, and requests withdrawn
//	operator.go   what operators see, how they break a hold, and sequencers
//	files.go      small files; nodes.go: those of the mirror, and events
//	principals.go who may do what; quota.go: how much, and how often
//	refusal.go    why a call fails
//
// Locks are those of package etcdlock/table, in the same etcd: a key for each hold and each place. None is on a lease of
// etcd's, so etcd never ends one by itself: expiry.go says who does.
package server
