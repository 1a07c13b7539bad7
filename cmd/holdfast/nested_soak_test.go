//go:build soak && linux

package main

import (
	"os"
	"testing"
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
