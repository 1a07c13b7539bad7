//go:build soak && linux

package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedisStranger: of the lock of a program that knows SET NX PX only, what is not known is shown as -.
func TestRedisStranger(t *testing.T) {
	w, server := newWorld(t), testserver.StartRedis(t, testserver.RedisOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=redis://"+server.Addr+"?hf.layout=setnx")
	server.Ask("SET", "theirs", "x", "NX", "PX", "60000")
	server.Ask("SET", "for ever", "x", "NX")
	const holder = `not a lock of Holdfast's +exclusive +- +- +`
	for name, ends := range map[string]string{"theirs": "ends in ", "for ever": "-"} {
		if out := w.run(0, "show", name).out.String(); !regexp.MustCompile(holder + ends).MatchString(out) {
			t.Errorf("show of a stranger's lock:\n%s", out)
		}
	}
	w.run(1, "break", "theirs", "--token", "1").expectErr("without a token")
	end := w.hold("ours")
	if out := w.run(0, "show", "ours").out.String(); strings.Contains(out, " - ") {
		t.Errorf("show of a lock of Holdfast's:\n%s", out)
	}
	end()
}

// TestRedisRedisson: an operator sees and breaks locks of services in Java, and those of commands beside them.
func TestRedisRedisson(t *testing.T) {
	w, server := newWorld(t), testserver.StartRedis(t, testserver.RedisOptions{})
	store := "redis://" + server.Addr + "?hf.layout=redisson"
	w.env = append(w.env, "HOLDFAST_STORE="+store)
	const client, other = "6f1e0dca-3a8b-4a7e-9c1e-2b7f4d9a0c11", "0b54a1de-77f3-4a3b-8a55-10f2c36d2b9e"
	token := func(name string) string {
		t.Helper()
		var info struct{ Holders []struct{ Token int64 } }
		if err := json.Unmarshal([]byte(w.run(0, "show", name, "-o", "json").out.String()), &info); err != nil || len(info.Holders) == 0 {
			t.Fatalf("%+v, %v", info, err)
		}
		return strconv.FormatInt(info.Holders[0].Token, 10)
	}
	// As Redisson writes them.
	for _, command := range []string{
		"HSET jobs/a " + client + ":42 2", "PEXPIRE jobs/a 60000",
		"HSET jobs/rw mode read " + client + ":42 1 " + other + ":7 1", "PEXPIRE jobs/rw 60000",
		"SET {jobs/rw}:" + client + ":42:rwlock_timeout:1 1 PX 60000", "SET {jobs/rw}:" + other + ":7:rwlock_timeout:1 1 PX 60000",
		"SET jobs/permits 2", "ZADD {jobs/permits}:timeout 922337203685477 sixteen--bytes--",
		"HSET jobs/user name x",
	} {
		server.Ask(strings.Fields(command)...)
	}
	list := w.run(0, "ls", "jobs/")
	for _, want := range []string{"Redisson " + client + ", thread 42, 2 times", "shared ×2", "1 of 3", "permit 7369787465656e2d2d62797465732d2d"} {
		list.expectOut(want)
	}
	if strings.Contains(list.out.String(), "jobs/user") {
		t.Errorf("other data are listed:\n%s", list.out.String())
	}
	w.run(0, "show", "jobs/rw").expectOut("Redisson " + other + ", thread 7")
	w.run(75, "run", "-n", "jobs/a", "--", "true").expectErr("is held by another")
	w.run(0, "break", "jobs/a", "--token", token("jobs/a")).expectOut("held by Redisson " + client)
	w.run(1, "break", "jobs/a", "--token", "1").expectErr("nobody holds")
	w.run(0, "run", "-n", "jobs/a", "--", "echo", "done").expectOut("done")
	w.run(64, "run", "-n", "--note", "a note", "jobs/a", "--", "true").expectErr("Note")
	w.run(64, "run", "-n", "--min-hold", "1s", "jobs/a", "--", "true").expectErr("minimum holds")
	w.run(64, "run", "-n", "--slots", "4", "jobs/permits", "--", "true").expectErr("another kind of lock")

	victim := w.start("run", "--ttl", "3s", "mine", "--", "sleep", "1000")
	await(t, "the command holds it", func() bool { return server.Ask("EXISTS", "mine") == "1" })
	w.run(0, "show", "mine").expectOut("Holdfast")
	w.run(0, "break", "mine", "--token", token("mine"))
	victim.ends(76)

	// The kinds of mutexes: a fenced one has tokens.
	w.env[len(w.env)-1] = "HOLDFAST_STORE=" + store + "&hf.redisson=fenced"
	w.run(0, "run", "numbered", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN").expectOut("token 1")
	w.run(0, "run", "numbered", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN").expectOut("token 2")
}

// TestRedisGone ends or stops the server under a command: the command is gone
// before its hold has ended, by the clock and by what comes next.
func TestRedisGone(t *testing.T) {
	for name, gone := range map[string]struct{ away, back func(*testserver.Redis) }{
		"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Start},
		"paused": {(*testserver.Redis).Pause, (*testserver.Redis).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			w, server := redisWorld(t, testserver.RedisOptions{AOF: true})
			file, next := w.path("stamps"), w.path("next")
			p := w.start("run", "--ttl", lossTTL, "--grace", "1s", "x", "--", "tree", file)
			awaitStamps(t, treeFiles(file)...)
			gone.away(server)
			latest := driver.HostClock.Now() // no renewal was sent later and answered
			p.ends(76)
			p.expectErr(`lock "x" could not be renewed: the command is told to end, and killed in `)
			p.hidesPassword()
			ttl, err := time.ParseDuration(lossTTL)
			if err != nil {
				t.Fatal(err)
			}
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
