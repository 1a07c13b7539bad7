package testserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// etcdProgram builds the program etcdmember of the module internal/tools, once for
// each process, and returns its path. There is no package to install: Go programs
// read the clock without the C library, so the clock of an etcd from elsewhere
// could not be set; this one is built with a package time that adds to the wall
// clock what it is told.
var etcdProgram = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	tools := filepath.Join(filepath.Dir(here), "..", "tools")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "holdfast-etcdmember")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := writeOverlay(dir)
	if err != nil {
		return "", err
	}
	// Test processes that run at the same time each build under a name of their
	// own and then rename; Go's build cache makes all but the first quick.
	built, err := os.CreateTemp(dir, "building-")
	if err != nil {
		return "", err
	}
	built.Close()
	defer os.Remove(built.Name())
	build := exec.Command("go", "build", "-C", tools, "-overlay", overlay, "-o", built.Name(), "./etcdmember")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building etcdmember: %w\n%s", err, out)
	}
	program := filepath.Join(dir, "etcdmember")
	return program, os.Rename(built.Name(), program)
})

// The change to package time: the wall clock's seconds, not those of the clock
// that cannot be set.
const (
	timeNow     = "\tsec, nsec, mono := runtimeNow()\n"
	timeNowJump = timeNow + "\tsec += wallJump\n"
	timeJump    = "\n// wallJump is by how many seconds the wall clock was set.\n//\n//go:linkname wallJump\nvar wallJump int64\n"
)

// writeOverlay writes the changed file of package time, and the file that tells
// the compiler to take it.
func writeOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text := string(source)
	if !strings.Contains(text, timeNow) {
		return "", errors.New("package time has changed: the wall clock of etcdmember cannot be set")
	}
	changed := filepath.Join(dir, "time.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		writeFile(changed, strings.ReplaceAll(text, timeNow, timeNowJump)+timeJump),
		writeFile(overlay, string(replace)),
	)
}

// writeFile writes a file in one step, so that nobody reads half of it.
func writeFile(path, text string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "writing-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(text)
	return errors.Join(err, temp.Close(), os.Rename(temp.Name(), path))
}
