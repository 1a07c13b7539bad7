//go:build linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// nobody is a user without any rights.
const nobody = "65534"

// container is a command line that runs the program after it as a container does: as process 1 of a PID
// namespace, as a user without rights, with a root file system that is read-only except for the store.
// A shell prepares that, and is replaced by the program.
func (w *world) container(setting string, args ...string) *process {
	w.t.Helper()
	testserver.NeedRoot(w.t)
	// The programs must be where that user may read them.
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	programs := w.path("programs")
	for _, err := range []error{
		os.MkdirAll(programs, 0o755), os.MkdirAll(w.path("data"), 0o777), os.Chmod(w.path("data"), 0o777),
		os.Chmod(w.dir, 0o755), os.Chmod(filepath.Dir(w.dir), 0o755),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for _, name := range []string{"holdfast", "stamp", "tree"} {
		copyFile(w.t, self, filepath.Join(programs, name))
	}
	script := `set -e
mount --make-rprivate /
mount --bind "$DATA" "$DATA"
` + setting + `
mount -o remount,ro,bind /
exec setpriv --reuid ` + nobody + ` --regid ` + nobody + ` --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"`
	p := w.command()
	p.cmd.Path, p.cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, "sh"}, args...)
	p.cmd.Env = append(w.env, "PATH="+programs+":"+os.Getenv("PATH"), "DATA="+w.path("data"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	return p
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
