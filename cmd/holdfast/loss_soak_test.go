//go:build soak && linux

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lossTTL has a margin of a tenth of a second, in which killed processes must be gone even if the machine
// is busy.
const lossTTL = "5s"

// TestMaxHold: after the maximum hold a command that hangs loses its lock as by any loss:
// it gets its grace, and is gone before the next holder.
func TestMaxHold(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("run", "--ttl", lossTTL, "--grace", "1s", "--max-hold", "1s", "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	p.ends(76)
	p.expectErr(`lock "x" has been held for --max-hold 1s, and is not renewed any more: the command is told to end, and killed in `)
	if says := "; the command was killed"; !strings.Contains(p.err.String(), says) {
		t.Errorf("it does not say %q:\n%s", says, p.err.String())
	}
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
	for _, f := range treeFiles(file)[:2] {
		if term := stamped(f + ".term"); term == 0 || term >= stamped(f) {
			t.Errorf("%s: SIGTERM at %v, the end at %v", filepath.Base(f), term, stamped(f))
		}
	}
}

// TestMaxHoldCommandEnds: a command that ends when it is told to has lost its lock all the same. One that
// has ended before has not.
func TestMaxHoldCommandEnds(t *testing.T) {
	w := newWorld(t)
	p := w.run(76, "run", "--ttl", lossTTL, "--grace", "500ms", "--max-hold", "100ms", "x", "--", "sh", "-c", "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.01; done")
	p.expectOut("cleaned")
	if says := "; the command ended with exit code 0"; !strings.Contains(p.err.String(), says) {
		t.Errorf("it does not say %q:\n%s", says, p.err.String())
	}
	w.run(3, "run", "-n", "--max-hold", "1h", "x", "--", "sh", "-c", "exit 3")
}

func TestCommandThatEndsInItsGraceButLeavesAChild(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `trap 'exit 0' TERM; stamp "$0" & wait`, file)
	awaitStamps(t, file)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	w.cut()
	p.ends(76)
	p.expectErr("could not be renewed")
	if !strings.Contains(p.err.String(), "the command ended with exit code 0") {
		t.Errorf("it does not say what became of the command:\n%s", p.err.String())
	}
	waiter.ends(0)
	goneBefore(t, next, file)
}

func TestStoreGoneAtTheEnd(t *testing.T) {
	w := newWorld(t)
	p := w.start("--store", w.cutURL(), "run", "--ttl", lossTTL, "--grace", "0s", "x", "--", "sh", "-c", `touch "$0"; exit 4`, w.locks+".cut")
	p.ends(4)
	p.expectErr("the store has not confirmed it")
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestStoppedRunLosesItsLockAndItsCommand(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("run", "--ttl", lossTTL, "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	p.signal(syscall.SIGSTOP)
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
	p.signal(syscall.SIGCONT)
	p.ends(76)
	if text := p.err.String(); !strings.Contains(text, "stood still") || !strings.Contains(text, "lost") {
		t.Errorf("it does not say why:\n%s", text)
	}
}

func TestChildrenOfOthersAreSpared(t *testing.T) {
	w := newWorld(t)
	file := w.path("other")
	// The shell's background job becomes run's child by exec, and is not the
	// command's.
	p := w.command("--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `touch "$0"; sleep 1000`, w.locks+".cut")
	p.cmd.Args = append([]string{"sh", "-c", `stamp "$0" >/dev/null 2>&1 & echo $!; exec "$@"`, file}, p.cmd.Args...)
	p.cmd.Path = "/bin/sh"
	p.start().ends(76)
	pid := atoi(t, strings.TrimSpace(p.out.String()))
	defer syscall.Kill(pid, syscall.SIGKILL)
	if !alive(pid) {
		t.Error("a process that the command did not start was killed")
	}
}

func TestLoss(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	const grace, late = 4 * time.Second, 3 * time.Second // SIGTERM may be handled so late
	p := w.start("--store", w.cutURL(), "run", "--ttl", renewedTTL, "--grace", grace.String(), "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	w.cut()
	p.ends(76)
	p.expectErr(`lock "x" could not be renewed: the command is told to end, and killed in `)
	if !strings.Contains(p.err.String(), errCut.Error()) || !strings.Contains(p.err.String(), "the command was killed") {
		t.Errorf("it does not say why:\n%s", p.err.String())
	}
	waiter.ends(0)
	goneBefore(t, next, treeFiles(file)...)
	// The command had its grace, and the daemon is not of its group. SIGTERM comes a grace before
	// the deadline and no sooner; SIGKILL at the deadline, in time for the margin of the TTL.
	ttl, err := time.ParseDuration(renewedTTL)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range treeFiles(file)[:2] {
		term, last := stamped(f+".term"), stamped(f)
		if had := last.Sub(term); term == 0 || had < grace-late || had > grace+ttl/50 {
			t.Errorf("%s: SIGTERM at %v, the end %v later", filepath.Base(f), term, had)
		}
	}
}
