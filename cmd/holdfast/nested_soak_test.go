//go:build soak && linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNestedStaysInTheOuterGroup(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "a", "--", "sh", "-c", "trap : USR1 TERM; holdfast run a -- signals & wait; wait; wait; echo the end")
	p.awaitOutput("up")
	// It gets the group's signals, without a process between that passes them on.
	for _, s := range []os.Signal{sigUSR1, sigTERM} {
		p.cmd.Process.Signal(s)
		p.awaitOutput(s.String())
	}
	p.cmd.Process.Signal(sigTERM)
	p.ends(0)
}

func TestNestedCommandDiesWithTheOuterLock(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("--store", w.cutURL(), "run", "--ttl", lossTTL, "--grace", "0s", "a", "--", "holdfast", "run", "b", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "a", "--", "once", next)
	w.awaitQueue("a", 1)
	w.cut()
	p.ends(76)
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
}

// The shell of this test's job is stopped together with run, and the job is continued as soon as the shell
// has stopped. So it is where somebody types fg at once, in a run around this one: run must not stop later.
func TestContinuedAtOnce(t *testing.T) {
	w := newWorld(t)
	file := w.path("stamps")
	p := w.command("-c", `holdfast run x -- sh -c 'echo $$; exec stamp "$0"' "$0"; echo rc=$?`, file)
	p.cmd.Path, p.cmd.SysProcAttr = "/bin/sh", &syscall.SysProcAttr{Setpgid: true}
	p.start()
	awaitStamps(t, file)
	command, group := atoi(t, strings.TrimSpace(p.out.String())), p.cmd.Process.Pid
	for range 20 {
		if err := syscall.Kill(command, syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		if err := unix.Waitid(unix.P_PID, group, nil, unix.WSTOPPED, nil); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(-group, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		after := nowStamp()
		await(t, "the command to go on", func() bool { return stamped(file) > after })
	}
	if err := syscall.Kill(command, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
	p.expectOut("rc=137")
}
