//go:build linux

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast"
)

// leader returns what the command leader shows: "" for a vacancy.
func (w *world) leader(name string) string {
	w.t.Helper()
	p := w.start("leader", name)
	code := p.wait()
	if vacant := p.out.String() == ""; vacant != (code == 1) || code > 1 {
		w.t.Fatalf("leader: exit code %d, wrote %q and %q", code, p.out.String(), p.err.String())
	}
	return strings.TrimSpace(p.out.String())
}

// TestElect: one process at a time runs its command; the next one in line is
// elected when the first ends, and the others see who it is.
func TestElect(t *testing.T) {
	w := newWorld(t)
	if got := w.leader("office"); got != "" {
		t.Errorf("a vacant office has the leader %q", got)
	}
	a := w.start("elect", "--value", "host-a:1", "office", "--", "stamp", w.path("a"))
	awaitStamps(t, w.path("a"))
	b := w.start("elect", "--value", "host b", "--once", "office", "--", "sh", "-c", "echo $HOLDFAST_NAME; exit 7")
	await(t, "the second candidate to wait", func() bool { return strings.Contains(w.run(0, "show", "office").out.String(), "WAITER") })
	if got := w.leader("office"); got != "host-a:1" {
		t.Errorf("the leader is %q, want host-a:1", got)
	}
	if b.out.String() != "" {
		t.Error("two commands at a time")
	}
	a.signal(syscall.SIGKILL)
	b.ends(7)
	if b.out.String() != "office\n" {
		t.Errorf("the second wrote %q", b.out.String())
	}
}

// TestElectWaitEnds: a signal ends the wait.
func TestElectWaitEnds(t *testing.T) {
	w := newWorld(t)
	defer w.hold("office")()
	p := w.start("elect", "office", "--", "true")
	await(t, "the candidate to wait", func() bool { return strings.Contains(w.run(0, "show", "office").out.String(), "WAITER") })
	p.signal(syscall.SIGTERM)
	p.ends(128 + 15)
}

func TestElectRefuses(t *testing.T) {
	w := newWorld(t)
	w.run(64, "elect", "office")
	w.run(64, "elect", "--", "true")
	w.run(64, "elect", "--ttl", "-1s", "office", "--", "true")
	w.run(64, "elect", "--value", strings.Repeat("x", holdfast.MaxNote+1), "office", "--", "true")
	w.run(127, "elect", "office", "--", "no-such-command")
	w.run(64, "run", "office", "--", "holdfast", "elect", "office", "--", "true")
	w.run(64, "leader")
	w.run(64, "leader", "a//b")
}
