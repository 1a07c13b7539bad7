package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// clockedCellProgram builds the program cellmember, whose wall clock can be set as that of etcdmember, and
// returns its path.
var clockedCellProgram = sync.OnceValues(func() (program string, err error) {
	root, err := workspace()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "cell", "server")
	dir, err := cacheDir("holdfast-cellmember")
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	overlay, _, err := writeOverlay(dir)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "cellmember")
	build := exec.Command("go", "build", "-C", module, "-trimpath", "-overlay", overlay, "-o", program, "./internal/cellmember")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cellmember: %w\n%s", err, out)
	}
	return program, nil
})

// newMemberClock makes the clock of a member, and the environment of a program that uses it.
func newMemberClock(t testing.TB, dir string) (*Clock, []string) {
	t.Helper()
	c := &Clock{t: t, file: filepath.Join(dir, "clock")}
	if err := os.WriteFile(c.file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, append(os.Environ(), "HOLDFAST_TEST_CLOCK="+c.file)
}

// SetWallClock sets the member's wall clock ahead of the host's by whole seconds, or behind it, and returns
// what it shows then. The cell must have been started with CellOptions.Clock.
func (m *CellMember) SetWallClock(ahead time.Duration) time.Time {
	m.t.Helper()
	m.clock.Set(ahead)
	says := fmt.Sprintf("wall %d ", ahead/time.Second)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, after, said := strings.Cut(m.Log(), says)
		if shown, _, whole := strings.Cut(after, "\n"); said && whole {
			nanos, err := strconv.ParseInt(shown, 10, 64)
			if err != nil {
				m.t.Fatal(errors.Join(errors.New("the member does not say what its clock shows"), err))
			}
			return time.Unix(0, nanos)
		}
	}
	m.t.Fatal("the member did not set its clock within 10 s")
	return time.Time{}
}
