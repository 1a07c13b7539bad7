package testserver

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// TakeTurn waits until no other test of this host has a turn, in whatever process, and keeps the turn until the test ends.
// A test takes one that keeps the processors busy by itself: with hundreds of clients, or with clients that
// give a server some 50 ms to answer. Two of them side by side would measure how long a process waits for a processor, and
// the deadlines that they test would pass meanwhile. It must not be called again by the same test.
func TakeTurn(t testing.TB) {
	t.Helper()
	path := filepath.Join(os.TempDir(), "holdfast-turn-"+strconv.Itoa(os.Getuid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) // and with it the lock
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
