//go:build soak

package demo

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// state returns the letter of a process's state, or X (dead) if there is no such process.
func state(pid string) string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "X"
	}
	_, after, _ := strings.Cut(string(text), ") ")
	letter, _, _ := strings.Cut(after, " ")
	return letter
}

// await waits until a condition holds of which the system does not notify anybody.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestKilledDemo: when the demo itself is killed its services end too, including the stopped one.
func TestKilledDemo(t *testing.T) {
	ownTempDir(t)
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
	_ = cmd.Wait() // the error says that it was killed
	await(t, "the services have ended", func() bool {
		return !slices.ContainsFunc(services, func(pid string) bool { return !strings.Contains("XZ", state(pid)) })
	})
}

// TestPauseIsReal: the system says that the service is stopped, and it can be killed then.
func TestPauseIsReal(t *testing.T) {
	f := pausedSale(t, "paused-unfenced")
	pid := strconv.Itoa(f.members[0].Process.Pid)
	await(t, "the service is stopped", func() bool { return state(pid) == "T" })
	enough := errors.New("enough")
	if err := f.kill(enough); !errors.Is(err, enough) {
		t.Errorf("the error is %v, want %v", err, enough)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}
