//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// redisPassword is the password of each server here. Holdfast must never print it.
const redisPassword = "s3cr3t/p%w"

// escapedPassword is the same in a URL.
const escapedPassword = "s3cr3t%2Fp%25w"

// redisWorld is a world whose store is a Redis server of its own. Its URL is in
// the environment, as it should be: arguments are shown to everybody by ps.
func redisWorld(t *testing.T, o testserver.RedisOptions) (*world, *testserver.Redis) {
	t.Helper()
	w := newWorld(t)
	o.Args = append(o.Args, "--requirepass", redisPassword)
	server := testserver.StartRedis(t, o)
	w.env = append(w.env, "HOLDFAST_STORE=redis://:"+escapedPassword+"@"+server.Addr)
	return w, server
}

// hidesPassword fails if a process has written the password, in either form.
func (p *process) hidesPassword() {
	p.t.Helper()
	for _, secret := range []string{redisPassword, escapedPassword} {
		if text := p.out.String() + p.err.String(); strings.Contains(text, secret) {
			p.t.Errorf("%v shows the password:\n%s", p.cmd.Args, text)
		}
	}
}

// TestRedis runs all commands on a Redis server, as an operator does.
func TestRedis(t *testing.T) {
	w, _ := redisWorld(t, testserver.RedisOptions{})
	w.operate()
}

// operate runs all commands on a store whose URL has the password.
func (w *world) operate() {
	w.t.Helper()
	w.run(0, "ls").hidesPassword()
	end := w.hold("jobs/a", "--note", "the first")
	w.run(75, "run", "-n", "jobs/a", "--", "touch", w.path("ran")).expectErr(`lock "jobs/a" is held by another ("the first"`)
	w.absent("ran")
	waiter := w.start("run", "jobs/a", "--", "sh", "-c", "echo $HOLDFAST_SEQUENCER $HOLDFAST_HELD")
	w.awaitQueue("jobs/a", 1)
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "json"}, {"show", "jobs/a"}, {"show", "jobs/a", "-o", "json"}} {
		p := w.run(0, args...)
		p.hidesPassword()
		p.expectOut("the first")
	}
	w.run(0, "doctor").hidesPassword()
	w.run(0, "doctor", "-o", "json").hidesPassword()
	end()
	waiter.ends(0)
	waiter.hidesPassword()
	waiter.expectOut("hf1:x:")

	defer w.hold("shared", "--shared")()
	w.run(0, "run", "-n", "--shared", "shared", "--", "true")
	w.run(75, "run", "-n", "shared", "--", "true")
	defer w.hold("slots", "--slots", "2")()
	w.run(0, "run", "-n", "--slots", "2", "slots", "--", "true")
	w.run(64, "run", "-n", "--slots", "3", "slots", "--", "true").hidesPassword()
	w.run(0, "run", "a", "--", "holdfast", "run", "-n", "a", "--", "true") // nested: joins

	victim := w.start("elect", "--once", "x", "--", "sh", "-c", "echo up; sleep 1000")
	victim.awaitOutput("up")
	w.breakLock("x")
	victim.ends(76)
	victim.expectErr("broken by an operator")
	victim.hidesPassword()
}

// TestRedisWrongStore: what is wrong with a URL is told by the exit code and on one line, without the password.
func TestRedisWrongStore(t *testing.T) {
	w, server := redisWorld(t, testserver.RedisOptions{})
	for _, c := range []struct {
		code      int
		url, says string
	}{
		{64, "redis://:" + escapedPassword + "@" + server.Addr + "?hf.nosuch=1", `unknown URL parameter "hf.nosuch"`},
		{64, "redis://:" + redisPassword + "@" + server.Addr, "not shown"},
		{69, "redis://:" + escapedPassword + "@127.0.0.1:1", "connection refused"},
		{69, "redis://:x" + escapedPassword + "@" + server.Addr, "WRONGPASS"},
		{69, "redis://" + server.Addr, "NOAUTH"},
		{69, "redis://:" + escapedPassword + "@nosuchhost.invalid", "nosuchhost.invalid"},
	} {
		wait := "1h"                                                                       // for which only a server that is down is worth waiting
		if strings.Contains(c.says, "refused") || strings.Contains(c.says, "nosuchhost") { // a test may have no name server
			wait = "1ms"
		}
		p := w.run(c.code, "--store", c.url, "run", "-w", wait, "x", "--", "touch", w.path("ran"))
		p.expectErr(c.says)
		p.hidesPassword()
		if lines := strings.Count(p.err.String(), "\n"); lines > 2 {
			t.Errorf("%s: %d lines of errors:\n%s", c.url, lines, p.err.String())
		}
	}
	w.absent("ran")
	w.run(1, "--store", "redis://:"+escapedPassword+"@127.0.0.1:1", "doctor").hidesPassword()
}
