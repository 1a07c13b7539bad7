package child

import (
	"os/exec"
	"slices"
	"testing"
)

// TestChildren: a child is listed until it has been waited for, also while it is a zombie.
func TestChildren(t *testing.T) {
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	check := func(when string, want bool) {
		t.Helper()
		if is, listed := isChild(pid), slices.Contains(children(), pid); is != want || listed != want {
			t.Errorf("%s: a child %v, listed %v, want %v", when, is, listed, want)
		}
	}
	check("while it runs", true)
	stdin.Close()
	for p, ok := readEntry(pid); ok && !p.dead; p, ok = readEntry(pid) {
	}
	check("as a zombie", true)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	check("when it has been waited for", false)
	if isChild(0) || isChild(1) {
		t.Error("processes that are no children are")
	}
}
