//go:build soak && linux

package main

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// everyStore returns a URL of each kind of store, with a server of the test's own.
var everyStore = map[string]func(*world) string{
	"files":      func(w *world) string { return "file://" + w.locks },
	"SQLite":     func(w *world) string { return "sqlite://" + w.path("locks.db") },
	"Redis":      func(w *world) string { return "redis://" + testserver.StartRedis(w.t, testserver.RedisOptions{}).Addr },
	"PostgreSQL": func(w *world) string { return testserver.StartPostgres(w.t).URL("postgres") },
	"MariaDB":    func(w *world) string { return testserver.StartMariaDB(w.t).URL() },
	"etcd": func(w *world) string {
		return "etcd://" + testserver.StartEtcd(w.t, testserver.EtcdOptions{}).Addrs()
	},
	"ZooKeeper": func(w *world) string {
		return "zk://" + testserver.StartZooKeeper(w.t, testserver.ZooKeeperOptions{}).Addrs() + "/app/locks"
	},
}

// TestBreakIsNoticed: on each store run learns of a break although no renewal is near: with this TTL the
// first one would be after twenty minutes. A break before run's first question counts, and one after its
// last question in stores that tell by themselves.
func TestBreakIsNoticed(t *testing.T) {
	const ttl = "1h"
	for name, url := range everyStore {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.env = append(w.env, "HOLDFAST_STORE="+url(w))
			file := w.path("stamps")
			early := w.start("run", "--ttl", ttl, "early", "--", "stamp", file)
			shared := w.start("run", "--ttl", ttl, "--shared", "shared", "--", "stamp", file+".shared")
			elected := w.start("elect", "--once", "--ttl", ttl, "office", "--", "stamp", file+".office")
			late := w.start("run", "--ttl", ttl, "--max-hold", "1s", "--grace", "0s", "late", "--", "stamp", file+".late")
			unrenewed := w.start("run", "--ttl", ttl, "--max-hold", "100ms", "--grace", "0s", "unrenewed", "--", "stamp", file+".unrenewed")
			awaitStamps(t, file, file+".shared", file+".office", file+".late", file+".unrenewed")
			began := stamped(file + ".late")
			broken := map[string]*process{"early": early, "shared": shared, "office": elected}
			for name, p := range broken {
				w.breakLock(name)
				at := nowStamp()
				p.ends(76)
				p.expectErr(`lock "` + name + `" (token `)
				p.expectErr("broken by an operator; the command was killed")
				t.Logf("%s: the break was noticed within %v", name, nowStamp().Sub(at))
			}
			// By now the questions to stores that tell are over, and so is the maximum hold.
			await(t, "three seconds", func() bool { return stamped(file+".late").Sub(began).Seconds() > 3 })
			for name, p := range map[string]*process{"late": late, "unrenewed": unrenewed} {
				w.breakLock(name)
				at := nowStamp()
				p.ends(76)
				p.expectErr("the command was killed")
				t.Logf("%s: the break was noticed within %v", name, nowStamp().Sub(at))
			}
		})
	}
}
