//go:build soak

package sqliteconn

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestStoppedWriter: a process that is stopped while it has the lock for which the processes line up
// delays others once, and no longer than a stopped waiter.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	d := dial(t, file, nil)
	info, err := os.Stat(file + "-writers")
	must(t, err)
	if of, err := os.Stat(file); err != nil || of.Mode() != info.Mode() {
		t.Errorf("the mode of the file is %v, not that of the SQLite file: %v", info.Mode(), err)
	}
	other := testserver.StartChild(t, "writer", file+"-writers")
	other.Expect("locked")
	other.Signal(syscall.SIGSTOP)
	start := time.Now()
	g, err := d.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Minute})
	if took, poll := time.Since(start), d.Caps().PollInterval(); err != nil || took > 2*poll {
		t.Fatalf("P7: Try beside a stopped writer took %v: %v", took, err)
	} else if took < poll/4 {
		t.Fatalf("it took %v: nothing was in the way", took)
	}
	start = time.Now()
	for range 20 { // half a poll each would be ten seconds
		must(t, d.Renew(t.Context(), []driver.Grant{g})[0].Err)
	}
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("P7: twenty renewals beside a stopped writer took %v", took)
	}
	must(t, d.Release(t.Context(), []driver.Grant{g})[0])
}

// TestForeignWriterFile: what somebody else has put in the place of the file is neither followed nor
// used, and the locks work without it.
func TestForeignWriterFile(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(target, path string) error{
		"symbolic link": os.Symlink,
		"hard link": func(target, path string) error {
			if err := os.WriteFile(target, nil, 0o600); err != nil {
				return err
			}
			return os.Link(target, path)
		},
		"pipe": func(_, path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, target := filepath.Join(dir, "locks.db"), filepath.Join(dir, "target")
			must(t, plant(target, file+"-writers"))
			if name == "hard link" { // a lock of its own that is not to matter
				other := testserver.StartChild(t, "writer", target)
				other.Expect("locked")
			}
			d := dial(t, file, nil)
			g, err := d.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Minute})
			must(t, err)
			if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(target); name == "symbolic link" && err == nil {
				t.Error("a link was followed")
			}
		})
	}
}
