package testserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// etcdProgram builds the program etcdmember of the module internal/test/tools, unless it
// is built, and returns its path. There is no package to install: Go programs
// read the clock without the C library, so the clock of an etcd from elsewhere
// could not be set; in the soak this one is built with a package time that adds
// to the wall clock what it is told.
var etcdProgram = sync.OnceValues(func() (program string, err error) {
	root, err := workspace()
	if err != nil {
		return "", err
	}
	tools := filepath.Join(root, "internal", "test", "tools")
	dir, err := cacheDir("holdfast-etcdmember")
	if err != nil {
		return "", err
	}
	// Packages are tested at the same time, and without the lock each would compile all of
	// etcd.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	overlay, changed, err := writeOverlay(dir)
	if err != nil {
		return "", err
	}
	source, err := fingerprint(tools, changed)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, Long("etcdmember-gate", "etcdmember"))
	built, _ := os.ReadFile(program + ".source") // not there: it is not built
	if _, err := os.Stat(program); err == nil && string(built) == source {
		return program, nil
	}
	return program, buildEtcd(tools, overlay, program, source)
})

// buildEtcd builds the program under another name, because the last one may be running, and
// records its fingerprint.
func buildEtcd(tools, overlay, program, source string) error {
	building := program + ".building"
	defer os.Remove(building)
	build := exec.Command("go", slices.Concat([]string{"build", "-C", tools}, BuildFlags(), []string{"-o", building, "./etcdmember"})...)
	if Soak {
		build.Args = slices.Insert(build.Args, 4, "-overlay", overlay)
	}
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building etcdmember: %w\n%s", err, out)
	}
	return errors.Join(os.Rename(building, program), writeFile(program+".source", source))
}

// fingerprint returns the hash of the sources of etcdmember.
func fingerprint(tools, changedTime string) (string, error) {
	files, err := filepath.Glob(filepath.Join(tools, "etcdmember", "*.go"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version())
	for _, name := range append(files, filepath.Join(tools, "go.mod"), filepath.Join(tools, "go.sum"), changedTime) {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d %s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// The change to package time: the wall clock's seconds, not those of the clock
// that cannot be set.
const (
	timeNow     = "\tsec, nsec, mono := runtimeNow()\n"
	timeNowJump = timeNow + "\tsec += wallJump\n"
	timeJump    = "\n// wallJump is by how many seconds the wall clock was set.\n//\n//go:linkname wallJump\nvar wallJump int64\n"
)

// writeOverlay writes the changed file of package time, and the file that tells
// the compiler to take it.
func writeOverlay(dir string) (overlay, changed string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", "", err
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", "", err
	}
	text := string(source)
	if !strings.Contains(text, timeNow) {
		return "", "", errors.New("package time has changed: the wall clock of etcdmember cannot be set")
	}
	changed = filepath.Join(dir, "time.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, changed, errors.Join(
		writeFile(changed, strings.ReplaceAll(text, timeNow, timeNowJump)+timeJump),
		writeFile(overlay, string(replace)),
	)
}

// writeFile writes a file in one step, so that no other process reads half of it.
func writeFile(path, text string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "writing-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(text)
	return errors.Join(err, temp.Close(), os.Rename(temp.Name(), path))
}
