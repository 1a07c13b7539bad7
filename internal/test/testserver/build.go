package testserver

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// BuildServers builds etcd and the cell, so that no test has to wait for them: if Go's build cache is empty,
// that takes some minutes.
func BuildServers() error {
	_, err := etcdProgram()
	_, errOfCell := cellProgram()
	return errors.Join(err, errOfCell)
}

var (
	// etcdProgram builds the program etcdmember of the module internal/test/tools: there is no package to install.
	etcdProgram = sync.OnceValues(func() (string, error) {
		return build("etcdmember", "internal/test/tools", "./etcdmember", false)
	})
	// cellProgram builds the command.
	cellProgram = sync.OnceValues(func() (string, error) { return build("holdfast", "cmd/holdfast", ".", false) })
	// clockedCellProgram builds the program cellmember, whose wall clock can be set.
	clockedCellProgram = sync.OnceValues(func() (string, error) {
		return build("cellmember", "cell/server", "./internal/membertest", true)
	})
)

// build builds a program of a module, and returns its path. With jumps its package time adds to the wall clock
// what it is told.
func build(name, module, of string, jumps bool) (program string, err error) {
	root, err := workspace()
	if err != nil {
		return "", err
	}
	// Each clone of the repository has its own programs: tests of several may run at the same time.
	dir, err := cacheDir(fmt.Sprintf("holdfast-programs-%x", sha256.Sum256([]byte(root)))[:25])
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, name)
	// Packages are tested at the same time, and without the lock each would compile the same, and write the overlay.
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	args := slices.Concat([]string{"build", "-C", filepath.Join(root, module)}, BuildFlags(), []string{"-o", program})
	if jumps {
		overlay, err := writeOverlay(dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, of)...)
	if cmd.Env = append(os.Environ(), "GOFLAGS="); jumps || module == "internal/test/tools" {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return program, nil
}

// workspace returns the root of the repository: the directory of go.work above the working
// directory. A test runs in the directory of its package.
func workspace() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.work above the working directory: run the tests inside the repository")
		}
	}
}

// cacheDir returns a directory of this user's cache. There is no fallback below the temporary
// directory: another user could put programs or files there before us, and the tests would run them.
func cacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("the tests keep programs and files in the user's cache: %w", err)
	}
	dir := filepath.Join(cache, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// lockFile waits until no other process has the lock of a file.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// The change to package time: the wall clock's seconds, not those of the clock that cannot be set. Go programs read
// the clock without the C library, so preload/clock.c has no effect on them.
const (
	timeNow     = "\tsec, nsec, mono := runtimeNow()\n"
	timeNowJump = timeNow + "\tsec += wallJump\n"
	timeJump    = "\n// wallJump is by how many seconds the wall clock was set.\n//\n//go:linkname wallJump\nvar wallJump int64\n"
)

// writeOverlay writes the changed file of package time, and the file that tells the compiler to take it.
func writeOverlay(dir string) (overlay string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(source), timeNow) {
		return "", errors.New("package time has changed: the wall clock of a Go program cannot be set")
	}
	changed := filepath.Join(dir, "time.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	overlay = filepath.Join(dir, "overlay.json")
	text := strings.ReplaceAll(string(source), timeNow, timeNowJump) + timeJump
	return overlay, errors.Join(err, os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600))
}
