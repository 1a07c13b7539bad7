//go:build soak && linux

package main

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestCrowd starts many processes together on one name. All of them run, one at a time, and none is told
// that it lost the lock.
func TestCrowd(t *testing.T) {
	some, many := testserver.Long(16, 100), testserver.Long(40, 200)
	for _, c := range []struct {
		store string
		n     int
		url   func(*world) string
	}{
		{"files", many, func(w *world) string { return "file://" + w.locks }},
		{"SQLite", testserver.Long(16, 40), func(w *world) string { return "sqlite://" + w.path("locks.db") }},
		{"Redis", some, func(w *world) string {
			return "redis://" + testserver.StartRedis(w.t, testserver.RedisOptions{}).Addr
		}},
		// It accepts 100 connections of users, as it does unless it is told otherwise.
		{"PostgreSQL", some, func(w *world) string { return testserver.StartPostgres(w.t).URL("postgres") }},
		{"MariaDB", testserver.Long(16, 40), func(w *world) string { return testserver.StartMariaDB(w.t).URL() }},
		{"etcd", some, func(w *world) string {
			return "etcd://" + testserver.StartEtcd(w.t, testserver.EtcdOptions{}).Addrs()
		}},
	} {
		t.Run(c.store, func(t *testing.T) {
			w := newWorld(t)
			w.env = append(w.env, "HOLDFAST_STORE="+c.url(w))
			w.crowd(c.n)
		})
	}
}
