package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// children returns the processes that this one has.
func children(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		t.Fatal(err) // or nothing would ever be found
	}
	return childrenOf(t, os.Getpid())
}

func childrenOf(t *testing.T, parent int) (found []string) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended
		}
		found = append(found, strings.Fields(string(text))...)
	}
	return found
}

// state returns the letter of a process's state; X if there is no such process,
// as if it were dead and not a zombie.
func state(pid string) string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "X"
	}
	_, after, _ := strings.Cut(string(text), ") ")
	letter, _, _ := strings.Cut(after, " ")
	return letter
}

// await waits until something is so that the system tells nobody of.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestKilledDemo: when the demo itself is killed its services end too, the
// stopped one among them.
func TestKilledDemo(t *testing.T) {
	own(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), parentEnv+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var services []string
	await(t, "a service is stopped", func() bool {
		services = childrenOf(t, cmd.Process.Pid)
		return slices.ContainsFunc(services, func(pid string) bool { return state(pid) == "T" })
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // that it was killed is no news
	await(t, "the services have ended", func() bool {
		return !slices.ContainsFunc(services, func(pid string) bool { return !strings.Contains("XZ", state(pid)) })
	})
}

// TestPauseIsReal: the system says that the service is stopped, at the point
// where it has read and not yet written; and it can be killed there.
func TestPauseIsReal(t *testing.T) {
	r := begun(t, "paused-unfenced")
	if err := r.stopFirst(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(r.fleet.members[0].cmd.Process.Pid)
	await(t, "the service is stopped", func() bool { return state(pid) == "T" })
	if len(r.open) != 1 {
		t.Errorf("%d requests are open, want the one that is paused", len(r.open))
	}
	r.fleet.kill()
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}
