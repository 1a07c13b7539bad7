package demo

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// children returns the processes that this one has, with their names.
func children(t *testing.T) (found []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // a thread that has ended
		}
		for pid := range strings.FieldsSeq(string(text)) {
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			found = append(found, fmt.Sprintf("%s (%s)", pid, strings.TrimSpace(string(name))))
		}
	}
	return found
}

// TestPauseIsReal: the system says that the service is stopped, at the point
// where it has read and not yet written; and it can be killed there.
func TestPauseIsReal(t *testing.T) {
	r := begun(t, "paused-unfenced")
	if err := r.stopFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("/proc/%d/stat", r.fleet.members[0].cmd.Process.Pid)
	for state := ""; state != "T"; { // the signal has been sent; the threads stop one by one
		text, err := os.ReadFile(stat)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), ") ")
		state, _, _ = strings.Cut(after, " ")
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if len(r.open) != 1 {
		t.Errorf("%d requests are open, want the one that is paused", len(r.open))
	}
	r.fleet.kill()
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}
