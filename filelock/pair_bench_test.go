//go:build soak && linux

package filelock_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/hostclock"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkAcquireRelease measures a pair of acquire and release beside the three system calls of a bare
// flock, and beside the system calls that a pair makes, one by one. Directories and files are of the depth
// that a store has.
func BenchmarkAcquireRelease(b *testing.B) {
	dir := b.TempDir()
	client, err := holdfast.Open(b.Context(), "file://"+dir)
	testserver.Must(b, err)
	defer client.Close()
	lock := client.Mutex("orders/42", nil)
	pair := func() error {
		lease, err := lock.Acquire(b.Context())
		if err == nil {
			err = lease.Release()
		}
		return err
	}
	testserver.Must(b, pair()) // makes the directories
	path := filepath.Join(dir, "holdfast-names", "orders.flock")
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	testserver.Must(b, err)
	defer syscall.Close(fd)
	page, text := make([]byte, 8*os.Getpagesize()), make([]byte, 400)
	var st syscall.Stat_t
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"holdfast", pair},
		{"open+flock+close", func() error {
			fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
			if err == nil {
				err = syscall.Flock(fd, syscall.LOCK_EX)
				syscall.Close(fd)
			}
			return err
		}},
		{"flock", func() error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) }},
		{"pread", func() error { _, err := syscall.Pread(fd, page, 0); return err }},
		{"pwrite", func() error { _, err := syscall.Pwrite(fd, text, 0); return err }},
		{"newfstatat", func() error { return syscall.Lstat(path, &st) }},
		{"clock_gettime", func() error { hostclock.Now(); return nil }},
	} {
		b.Run(call.name, func(b *testing.B) {
			for b.Loop() {
				if err := call.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
