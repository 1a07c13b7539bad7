//go:build soak && linux

package main

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedisDeployments: a job goes on, and the next one waits for it, while the server that has its lock is
// killed and a replica takes over.
func TestRedisDeployments(t *testing.T) {
	t.Run("sentinel", func(t *testing.T) {
		s := testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1})
		w := newWorld(t)
		w.env = append(w.env, "HOLDFAST_STORE=redis+sentinel://"+s.Addrs()+"/"+testserver.PrimaryName)
		survives(w, func() {
			s.Servers[0].Kill()
			awaits(w, "jobs/b", func() { s.AwaitPrimary(s.Servers[0]) })
		})
		w.run(69, "--store", "redis+sentinel://"+s.Addrs()+"/other", "run", "a", "--", "true").expectErr("No such master")
		w.run(64, "--store", "redis+sentinel://"+s.Addrs(), "run", "a", "--", "true").expectErr("does not name the primary")
	})
	t.Run("cluster", func(t *testing.T) {
		c := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
		w := newWorld(t)
		w.env = append(w.env, "HOLDFAST_STORE=redis+cluster://"+c.Addrs())
		survives(w, func() {
			master := c.Master("jobs/a")
			name := c.KeyOf(master)
			master.Kill()
			awaits(w, name, func() { c.AwaitMaster(name, master) })
		})
		const first = "holdfast:store"                                                                             // the key that is read first
		if master := c.Master(first); master == c.Servers[0] || master == c.Servers[1] || master == c.Servers[2] { // and not killed yet
			master.Kill()
			awaits(w, "jobs/b", func() { c.AwaitMaster(first, master) })
		}
		w.run(0, "--store", "redis+cluster://"+c.Addrs()+"?hf.layout=setnx", "run", "a}", "--", "echo", "done").expectOut("done")
	})
}

// awaits runs a job with -w while nobody has taken over yet.
func awaits(w *world, name string, takesOver func()) {
	w.t.Helper()
	patient := w.start("run", "-w", "1m", name, "--", "echo", "patient")
	takesOver()
	patient.ends(0)
	patient.expectOut("patient")
}

// survives runs a job and one that waits for it, and lets a fail-over happen meanwhile.
func survives(w *world, failover func()) {
	w.t.Helper()
	end := w.hold("jobs/a", "--note", "the first")
	waiter := w.start("run", "jobs/a", "--", "echo", "done")
	w.awaitQueue("jobs/a", 1)
	failover()
	w.run(0, "show", "jobs/a").expectOut("the first")
	end()
	waiter.ends(0)
	waiter.expectOut("done")
	w.run(0, "ls")
}
