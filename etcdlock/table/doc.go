// Package table is the table of locks that etcdlock and the lock service keep in etcd: which keys there are and what
// they say, whom a name's keys admit, and the transactions that put, move, change and delete them.
//
// It has no state and does no I/O. Who asks, under which key and on which lease are arguments, and
// what etcd answers is handed back to be made sense of. Package etcdlock keeps one client's keys
// and leases over it; a member of the lock service serves the sessions of many.
//
// The rule of the table: of a name's keys the one that was created first comes first. A request
// holds the name as soon as all keys that were created before its own admit it ([Admits]). Keys
// before it can only go, so what is admitted stays admitted, however old the knowledge of the
// others is. Its fencing token is made of its key's create revision ([Layout.Token]).
//
// Its types may change from version to version: it is for the packages of this repository.
package table
