//go:build soak && linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// newContainerWorld has its store where a container may write.
func newContainerWorld(t *testing.T) *world {
	w := newWorld(t)
	w.locks = filepath.Join(w.path("data"), "locks")
	w.env = append(w.env, "HOLDFAST_STORE=file://"+w.locks)
	return w
}

// settings are the two kinds of /proc that a container may have: its own, or, as with `unshare -pf`, that
// of the host, which has other process ids.
var settings = map[string]string{
	"its own proc":    "mount -t proc proc /proc",
	"the host's proc": "",
}

// TestProcessOne: as process 1 of a container run passes SIGTERM on and releases the lock, and no process
// of the command survives.
func TestProcessOne(t *testing.T) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			w := newContainerWorld(t)
			file := filepath.Join(w.path("data"), "stamps")
			p := w.container(setting, "holdfast", "run", "x", "--", "sh", "-c", `trap "exit 7" TERM; tree "$0" & wait`, file).start()
			awaitStamps(t, treeFiles(file)...)
			w.run(75, "run", "-n", "x", "--", "true")
			p.signal(syscall.SIGTERM)
			p.ends(7)
			stampsStop(t, file)
			w.run(0, "run", "-n", "x", "--", "true") // given back, not left to its TTL
		})
	}
}

// TestProcessOneReaps: zombies do not accumulate in a container.
func TestProcessOneReaps(t *testing.T) {
	w := newContainerWorld(t)
	p := w.container(settings["its own proc"], "holdfast", "run", "x", "--", "sh", "-c", `
for i in 1 2 3 4 5; do sh -c 'setsid true & true & exit 0'; done
while grep -ls "^State:.Z" /proc/[0-9]*/status >/dev/null; do sleep 0.01; done
echo clean; cat`)
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	p.awaitOutput("clean")
	stdin.Close()
	p.ends(0)
}

// TestLossInContainer: the end of process 1 would end all processes. When run is not process 1, it must
// find processes that have left the group.
func TestLossInContainer(t *testing.T) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			w := newContainerWorld(t)
			file := filepath.Join(w.path("data"), "stamps")
			p := w.container(setting, "sh", "-c", `holdfast --store "$0" run --ttl 2s --grace 0s x -- tree "$1"; echo "code $?"; cat`, w.cutURL(), file)
			stdin, err := p.cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p.start()
			awaitStamps(t, treeFiles(file)...)
			w.cut()
			p.awaitOutput("code 76")
			if text := p.err.String(); strings.Contains(text, "still there") {
				t.Errorf("processes are left, or said to be:\n%s", text)
			}
			stampsStop(t, file)
			stdin.Close()
			p.ends(0)
		})
	}
}

// stampsStop expects that no process of a tree writes any more.
func stampsStop(t *testing.T, file string) {
	t.Helper()
	last := map[string]any{}
	for _, f := range treeFiles(file) {
		last[f] = stamped(f)
	}
	// A process of the tree that is alive writes each half a millisecond: it would
	// have written before another, started now, has.
	other := filepath.Join(t.TempDir(), "other")
	p := (&world{t: t, dir: filepath.Dir(other), env: os.Environ()}).command()
	p.cmd.Path, p.cmd.Args = filepath.Join(bin, "stamp"), []string{"stamp", other}
	p.start()
	awaitStamps(t, other)
	for begin := stamped(other); stamped(other).Sub(begin).Milliseconds() < 100; {
	}
	for _, f := range treeFiles(file) {
		if stamped(f) != last[f] {
			t.Errorf("%s goes on", filepath.Base(f))
		}
	}
}

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
