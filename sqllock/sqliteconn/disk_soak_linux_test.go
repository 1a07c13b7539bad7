//go:build soak

package sqliteconn

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/sqllock/internal/sqltest"
)

// TestFullDisk: on a disk that is full, or where the file may not grow, a request
// fails with an error, a hold stays, and everything goes on when there is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err == nil { // as root
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		sqltest.StartChild(t, "fill", filepath.Join(dir, "locks.db"), filepath.Join(dir, "ballast")).Wait()
	}
	sqltest.StartChild(t, "fill", filepath.Join(t.TempDir(), "locks.db"), "").Wait()
}

// TestReadOnlyFile: who may not write the file is told so, at once.
func TestReadOnlyFile(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"in a directory of others": 0o555, "in a directory of its own": 0o777} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			file := filepath.Join(dir, "locks.db")
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := dial(t, file, nil).Close(); err != nil {
				t.Fatal(err)
			}
			for path, mode := range map[string]os.FileMode{filepath.Dir(parent): 0o755, parent: 0o755, dir: mode, file: 0o444} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			defer os.Chmod(dir, 0o777) // so that it can be removed
			sqltest.StartChild(t, "read", file).Wait()
		})
	}
}
