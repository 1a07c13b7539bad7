//go:build soak && linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMinHold: the name is closed until then, which one of an hour shows however slow the machine
// is, and open after it.
func TestMinHold(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "-n", "--min-hold", "1h", "long", "--", "true")
	w.run(75, "run", "-n", "long", "--", "true")
	w.run(0, "ls").expectOut("closed")
	start := time.Now()
	w.run(0, "run", "-n", "--min-hold", "2s", "tick", "--", "true")
	w.run(0, "run", "-w", "1m", "tick", "--", "true")
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("the name was open again after %v", took)
	}
}

func TestWhatTheCommandLeavesBehindGoesOn(t *testing.T) {
	w := newWorld(t)
	file := w.path("left")
	p := w.command("run", "x", "--", "sh", "-c", `stamp "$0" >/dev/null 2>&1 & echo $!`, file)
	p.start().ends(0)
	pid := atoi(t, strings.TrimSpace(p.out.String()))
	defer syscall.Kill(pid, syscall.SIGKILL)
	after := nowStamp()
	await(t, "a stamp after the end of run", func() bool { return stamped(file) > after })
	w.run(0, "run", "-n", "x", "--", "true")
}

func TestSignalsWhileWaiting(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		p := w.start("run", "x", "--", "touch", w.path("ran"))
		w.awaitQueue("x", 1)
		p.signal(s)
		p.ends(128 + int(s))
		w.awaitQueue("x", 0)
	}
	// The other signals do not disturb the wait.
	p := w.start("run", "x", "--", "touch", w.path("ran"))
	w.awaitQueue("x", 1)
	p.signal(syscall.SIGUSR1)
	p.signal(syscall.SIGWINCH)
	p.signal(syscall.SIGTERM)
	p.ends(128 + 15)
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("a command ran without its lock")
	}
}

func TestStoppedCommandKeepsItsLock(t *testing.T) {
	w := newWorld(t)
	file := w.path("stamps")
	p := w.start("run", "--ttl", lossTTL, "x", "--", "sh", "-c", `echo $$; exec stamp "$0"`, file)
	awaitStamps(t, file)
	pid := atoi(t, strings.TrimSpace(p.out.String()))
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Longer than the TTL: run renews for it.
	w.run(75, "run", "-w", "6s", "x", "--", "true")
	syscall.Kill(pid, syscall.SIGCONT)
	after := nowStamp()
	await(t, "a stamp after the stop", func() bool { return stamped(file) > after })
	syscall.Kill(pid, syscall.SIGKILL)
	p.ends(128 + 9)
}
