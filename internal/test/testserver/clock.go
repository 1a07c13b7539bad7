package testserver

import (
	_ "embed"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// clockSource is a small library that one program loads before its C library. (libfaketime
// makes redis-server hang.)
//
//go:embed preload/clock.c
var clockSource []byte

// Clock is the wall clock of one program that a test has started. It has no effect on programs
// that make the system call without the C library, as Go's do.
type Clock struct {
	t       testing.TB
	library string
	file    string
}

// newClock makes a clock that shows the host's time. It needs a C compiler.
func newClock(t testing.TB, dir string) *Clock {
	t.Helper()
	c := &Clock{t: t, library: preloadable(t, dir, "clock", clockSource), file: filepath.Join(dir, "clock")}
	Must(t, os.WriteFile(c.file, make([]byte, 4096), 0o644)) // the program may be another user's
	return c
}

// preloadable compiles a library that a program loads before its C library, and returns its path.
// It needs a C compiler.
func preloadable(t testing.TB, dir, name string, source []byte) string {
	t.Helper()
	file, library := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
	Must(t, os.WriteFile(file, source, 0o600))
	prepare(t, nil, Need(t, "gcc", "gcc"), "-O2", "-Wall", "-shared", "-fPIC", "-o", library, file)
	return library
}

// environ returns the environment of a program that uses this clock.
func (c *Clock) environ() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "HOLDFAST_TEST_CLOCK="+c.file)
}

// Set sets the clock ahead of the host's, or behind it if ahead is negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	Must(c.t, err)
	Must(c.t, binary.Write(f, binary.NativeEndian, int64(ahead)), f.Close())
}
