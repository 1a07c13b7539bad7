//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestNested(t *testing.T) {
	w := newWorld(t)
	p := w.run(0, "run", "a", "--", "holdfast", "run", "b", "--", "holdfast", "run", "-n", "a", "--",
		"sh", "-c", `echo $HOLDFAST_NAME; holdfast ls -o json; echo "$HOLDFAST_HELD"; ps -o pgid= $$ | tr -d ' '; ps -o pgid= $PPID | tr -d ' '`)
	lines := strings.Split(p.out.String(), "\n")
	if len(lines) < 6 || lines[0] != "a" || !strings.Contains(lines[1], `"name":"a"`) || !strings.Contains(lines[2], `"name":"b"`) {
		t.Fatalf("unexpected:\n%s", p.out.String())
	}
	if strings.Count(lines[3], `"sequencer"`) != 2 {
		t.Errorf("HOLDFAST_HELD is %s", lines[3])
	}
	// Joining does not change the outer hold, and each command ends once.
	w.run(0, "run", "-n", "a", "--", "true")
	w.run(0, "run", "-n", "b", "--", "true")
	w.run(9, "run", "a", "--", "holdfast", "run", "a", "--", "sh", "-c", "exit 9")
	w.run(128+9, "run", "a", "--", "sh", "-c", "holdfast run a -- sh -c 'kill -9 $$'; exit $?")
}

func TestNestedModes(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "a", "--", "holdfast", "run", "-n", "--shared", "a", "--", "true")
	w.run(0, "run", "--shared", "a", "--", "holdfast", "run", "-n", "--shared", "a", "--", "true")
	w.run(64, "run", "--shared", "a", "--", "holdfast", "run", "a", "--", "true").expectErr("would wait for itself")
	w.run(0, "run", "--slots", "2", "--permits", "2", "s", "--", "holdfast", "run", "-n", "--slots", "2", "s", "--", "true")
	w.run(64, "run", "--slots", "2", "s", "--", "holdfast", "run", "--slots", "2", "--permits", "2", "s", "--", "true").expectErr("would wait for itself")
	w.run(0, "run", "--slots", "3", "s", "--", "holdfast", "run", "-n", "--slots", "3", "--permits", "2", "s", "--", "true")
}

// The environment alone proves nothing.
func TestStaleHeld(t *testing.T) {
	w := newWorld(t)
	old := ""
	for line := range strings.Lines(w.run(0, "run", "a", "--", "env").out.String()) {
		if strings.HasPrefix(line, "HOLDFAST_HELD=") {
			old = strings.TrimSpace(line)
		}
	}
	if old == "" {
		t.Fatal("no HOLDFAST_HELD")
	}
	w.env = append(w.env, old)
	end := w.hold("a")
	w.run(75, "run", "-n", "a", "--", "true") // that hold is over
	end()
	w.run(0, "run", "-n", "a", "--", "sh", "-c", `test "$HOLDFAST_TOKEN" -gt 0`)

	// The hold of another cannot be claimed under a name that is not its own.
	other := w.start("run", "b", "--", "sh", "-c", `echo "$HOLDFAST_HELD"; cat >/dev/null; sleep 1000`)
	other.awaitOutput("\n")
	held := strings.TrimSpace(other.out.String())
	end = w.hold("a")
	w.env = append(w.env, "HOLDFAST_HELD="+strings.ReplaceAll(held, `"name":"b"`, `"name":"a"`))
	w.run(75, "run", "-n", "a", "--", "true")
	end()

	// In another store the name is another lock.
	w.env = append(w.env, "HOLDFAST_HELD="+held)
	w.run(0, "run", "-n", "b", "--", "true")
	w.run(0, "--store", "file://"+w.path("elsewhere"), "run", "-n", "b", "--", "sh", "-c", `test "$(holdfast ls | wc -l)" = 2`)
}
