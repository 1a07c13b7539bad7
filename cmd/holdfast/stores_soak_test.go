//go:build soak && linux

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestZooKeeper runs all commands on a ZooKeeper server, as an operator does.
func TestZooKeeper(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	w := newWorldOf(t, "zk://app:"+escapedPassword+"@"+server.Addrs()+"/app/locks")
	w.operate()
	w.run(69, "--store", "zk://app:wrong@"+server.Addrs()+"/app/locks", "run", "-w", "1h", "x", "--", "true").expectErr("not permitted")
	server.Members[0].Kill()
	w.run(69, "ls").hidesPassword()
	w.run(1, "doctor").hidesPassword()
	w.run(69, "run", "x", "--", "true").expectErr("connection refused")
}

// TestWrongPasswordOfEtcd: what the server refuses is no wrong usage.
func TestWrongPasswordOfEtcd(t *testing.T) {
	w := newWorld(t)
	addr := testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}})
	testserver.Must(t, err)
	defer root.Close()
	_, err1 := root.UserAdd(t.Context(), "root", "secret")
	_, err2 := root.UserGrantRole(t.Context(), "root", "root")
	_, err3 := root.AuthEnable(t.Context())
	testserver.Must(t, err1, err2, err3)
	w.run(0, "--store", "etcd://root:secret@"+addr, "run", "x", "--", "true")
	w.run(69, "--store", "etcd://root:wrong@"+addr, "run", "-w", "1h", "x", "--", "true").expectErr("password")
	w.run(69, "--store", "etcd://"+addr, "run", "x", "--", "true")
}

// TestSilentServer: -n and -w bound all that commands wait for at a server that answers nothing, which is named.
func TestSilentServer(t *testing.T) {
	for name, start := range testserver.Stores {
		t.Run(name, func(t *testing.T) {
			url, pause := start(t)
			w := newWorldOf(t, url)
			if pause == nil {
				return
			}
			pause()
			w.env = append(w.env, "IMPATIENT=1")
			for args, within := range map[string]time.Duration{
				"run -n x -- true": 2, "run -w 1s x -- true": 3, "ls -w 1s": 1, "show x -w 1s": 1, "leader x -w 1s": 1,
				"break x --token 1 -w 1s": 1, "doctor -w 1s": 1,
			} {
				begun, p := time.Now(), w.start(strings.Fields(args)...)
				p.wait()
				took, text := time.Since(begun), p.out.String()+p.err.String()
				if took > within*time.Second+5*time.Second/2 || !strings.Contains(text, "no answer from 127.0.0.1:") {
					t.Errorf("%s took %v and wrote %s", args, took, text)
				}
			}
		})
	}
}

// TestRedlock: servers that were started just now grant nothing, and run says why. When that is over locks go on, also
// when one of them is dead. With another dead the store cannot be reached.
func TestRedlock(t *testing.T) {
	w := newWorld(t)
	var servers []*testserver.Redis
	var addresses []string
	for range 3 {
		s := testserver.StartRedis(t, testserver.RedisOptions{Fresh: true})
		servers, addresses = append(servers, s), append(addresses, s.Addr)
	}
	store := "redlock://" + strings.Join(addresses, ",")
	w.run(75, "--store", store, "run", "-n", "reports/nightly", "--", "true").expectErr("may have forgotten who holds it")
	for _, s := range servers {
		s.Serves("{0}")
	}
	servers[1].Kill()
	w.run(0, "--store", store, "run", "-n", "reports/nightly", "--", "true")
	servers[2].Kill()
	w.run(69, "--store", store, "run", "-n", "reports/nightly", "--", "true").expectErr("no majority")
}

// goneServers are two ways in which a server goes, and comes back.
var goneServers = map[string]struct{ away, back func(*testserver.Redis) }{
	"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Start},
	"paused": {(*testserver.Redis).Pause, (*testserver.Redis).Resume},
}

// TestServerGone ends or stops the server under a command: the command is gone before its hold has ended, by the
// clock and by what comes next.
func TestServerGone(t *testing.T) {
	for name, gone := range goneServers {
		t.Run(name, func(t *testing.T) {
			w, server := redisWorld(t, testserver.RedisOptions{AOF: true})
			file, next := w.path("stamps"), w.path("next")
			p := w.start("run", "--ttl", lossTTL, "--grace", "1s", "x", "--", "tree", file)
			awaitStamps(t, treeFiles(file)...)
			gone.away(server)
			latest := nowStamp() // no renewal was sent later and answered
			p.ends(76)
			p.expectErr(`lock "x" could not be renewed in `)
			p.hidesPassword()
			ttl, err := time.ParseDuration(lossTTL)
			testserver.Must(t, err)
			for _, f := range treeFiles(file) {
				if over := stamped(f).Sub(latest) - ttl; over >= 0 {
					t.Errorf("%s went on for %v after its hold had ended", f, over)
				}
			}
			gone.back(server)
			w.run(0, "run", "-w", "1m", "x", "--", "once", next)
			goneBefore(t, next, treeFiles(file)...)
		})
	}
}

// TestFallbackServerGone ends or stops a server under processes that hold and wait. The holder loses the lock before
// the waiter has it from the second store; after the server is back the first store is used.
func TestFallbackServerGone(t *testing.T) {
	for name, gone := range goneServers {
		t.Run(name, func(t *testing.T) {
			w, server := redisWorld(t, testserver.RedisOptions{AOF: true})
			w.env = append(w.env, "HOLDFAST_FALLBACK=file://"+w.path("second"))
			stamps, next := w.path("stamps"), w.path("next")
			holder := w.start("run", "--ttl", lossTTL, "x", "--", "stamp", stamps)
			awaitStamps(t, stamps)
			waiter := w.start("run", "--ttl", lossTTL, "x", "--", "stamp", next)
			w.awaitQueue("x", 1)
			gone.away(server)
			holder.ends(76)
			awaitStamps(t, next)
			goneBefore(t, next, stamps)
			waiter.says("is held in the second store")
			w.run(75, "run", "-w", "1ms", "--ttl", lossTTL, "x", "--", "true").hidesPassword() // finds a server that is down
			gone.back(server)
			await(t, "the way back", func() bool { return strings.Contains(waiter.err.String(), "answers again") })
			w.run(75, "run", "-n", "x", "--", "true")
			waiter.signal(syscall.SIGKILL)
			w.run(0, "run", "-w", "2m", "--ttl", lossTTL, "x", "--", "sh", "-c", "[ $HOLDFAST_TOKEN != 0 ]")
			holder.hidesPassword()
			waiter.hidesPassword()
		})
	}
}

// TestFallbackAfter: a user whom two holders at the same time do not harm need not wait.
func TestFallbackAfter(t *testing.T) {
	w := newWorld(t)
	atOnce := []string{"--store", "redis://127.0.0.1:1", "run", "-n", "--fallback", "file://" + w.path("second"), "--fallback-after", "0s", "x", "--"}
	p := w.run(0, append(atOnce, "sh", "-c", "echo $HOLDFAST_TOKEN")...)
	p.expectOut("0\n")
	p.expectErr("redis://127.0.0.1:1 does not answer")
	w.run(69, append(append(atOnce, "holdfast"), append(atOnce, "true")...)...).says("it would wait for itself")
	w.run(69, "--store", "redis://127.0.0.1:1", "run", "-n", "x", "--", "true") // without a second store
}

// TestBreakIsNoticed: on each store run learns of a break although no renewal is near: with this TTL the first one
// would be after twenty minutes. A break before run's first question counts, and one after its last question in
// stores that tell by themselves, and after the maximum hold.
func TestBreakIsNoticed(t *testing.T) {
	for name, start := range testserver.Stores {
		t.Run(name, func(t *testing.T) {
			url, _ := start(t)
			w := newWorldOf(t, url)
			flags := map[string][]string{"early": nil, "shared": {"--shared"}, "late": {"--max-hold", "1s", "--grace", "0s"}}
			running := map[string]*process{"office": w.start("elect", "--once", "--ttl", "1h", "office", "--", "stamp", w.path("office"))}
			for name, own := range flags {
				running[name] = w.start(append(append([]string{"run", "--ttl", "1h"}, own...), name, "--", "stamp", w.path(name))...)
			}
			for name := range running {
				awaitStamps(t, w.path(name))
			}
			begun := stamped(w.path("late"))
			for _, name := range []string{"early", "shared", "office"} {
				w.breakLock(name)
				running[name].ends(76)
				running[name].expectErr("broken by an operator; the command was killed")
			}
			// Then the questions to stores that tell are over, and so is the maximum hold.
			await(t, "three seconds", func() bool { return stamped(w.path("late")).Sub(begun) > 3*time.Second })
			w.breakLock("late")
			running["late"].ends(76)
			running["late"].expectErr("the command was killed")
		})
	}
}
