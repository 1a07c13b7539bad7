//go:build soak && linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// lossTTL has a margin of a tenth of a second, in which killed processes must be gone even if the machine
// is busy.
const lossTTL = "5s"

// loses has holdfast run tree under the lock x, has lose take the lock from it, and expects that all of it is gone before the
// next holder begins (P1).
func (w *world) loses(lose func(*process), args ...string) (p *process, files []string) {
	w.t.Helper()
	file, next := w.path("stamps"), w.path("next")
	p = w.start(append(args, "--", "tree", file)...)
	awaitStamps(w.t, treeFiles(file)...)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	lose(p)
	waiter.ends(0)
	goneBefore(w.t, next, treeFiles(file)...)
	return p, treeFiles(file)
}

// TestLoss: a store that cannot be reached. The command has its grace, a daemon is not of its group. SIGTERM comes a
// grace before the deadline and no sooner; SIGKILL at the deadline, in time for the margin of the TTL.
func TestLoss(t *testing.T) {
	w := newWorld(t)
	const grace, late = 4 * time.Second, 3 * time.Second // SIGTERM may be handled so late
	p, files := w.loses(func(*process) { w.cut() }, "--store", w.cutURL(), "run", "--ttl", renewedTTL, "--grace", grace.String(), "x")
	p.ends(76)
	p.expectErr(`lock "x" could not be renewed in `)
	p.says(errCut.Error())
	p.says("the command was killed")
	ttl, err := time.ParseDuration(renewedTTL)
	testserver.Must(t, err)
	for _, f := range files[:2] {
		term, last := stamped(f+".term"), stamped(f)
		if had := last.Sub(term); term == 0 || had < grace-late || had > grace+ttl/50 {
			t.Errorf("%s: SIGTERM at %v, the end %v later", filepath.Base(f), term, had)
		}
	}
}

// TestMaxHold: after the maximum hold a command that hangs loses its lock as by any loss. One that ends when it is
// told to has lost it all the same; one that has ended before has not.
func TestMaxHold(t *testing.T) {
	w := newWorld(t)
	p, _ := w.loses(func(*process) {}, "run", "--ttl", lossTTL, "--grace", "1s", "--max-hold", "1s", "x")
	p.ends(76)
	p.expectErr(`lock "x" has been held for --max-hold 1s, and is not renewed any more: the command is told to end, and killed in `)
	p = w.run(76, "run", "--ttl", lossTTL, "--grace", "500ms", "--max-hold", "100ms", "x", "--",
		"sh", "-c", "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.01; done")
	p.expectOut("cleaned")
	p.says("; the command ended with exit code 0")
	w.run(3, "run", "-n", "--max-hold", "1h", "x", "--", "sh", "-c", "exit 3")
}

// TestStoppedRun: a run that stands still loses its lock and its command.
func TestStoppedRun(t *testing.T) {
	w := newWorld(t)
	p, _ := w.loses(func(p *process) { p.signal(syscall.SIGSTOP) }, "run", "--ttl", lossTTL, "x")
	p.signal(syscall.SIGCONT)
	p.ends(76)
	p.says("stood still")
	p.says("lost")
}

// TestCommandLeavesAChild: a command that ends in its grace has left a process, which is killed too.
func TestCommandLeavesAChild(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `trap 'exit 0' TERM; stamp "$0" & wait`, file)
	awaitStamps(t, file)
	waiter := w.start("run", "x", "--", "once", next)
	w.awaitQueue("x", 1)
	w.cut()
	p.ends(76)
	waiter.ends(0)
	goneBefore(t, next, file)
}

// TestStoreGoneAtTheEnd: the command's exit code counts, although the store does not confirm the release.
func TestStoreGoneAtTheEnd(t *testing.T) {
	w := newWorld(t)
	p := w.run(4, "--store", w.cutURL(), "run", "--ttl", lossTTL, "--grace", "0s", "x", "--", "sh", "-c", `touch "$0"; exit 4`, w.locks+".cut")
	p.expectErr("the store has not confirmed it")
}

// TestChildrenOfOthersAreSpared: a shell's background job becomes run's child by exec, and is not the command's.
func TestChildrenOfOthersAreSpared(t *testing.T) {
	w := newWorld(t)
	p := w.command("--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `touch "$0"; sleep 1000`, w.locks+".cut")
	p.cmd.Args = append([]string{"sh", "-c", `stamp "$0" >/dev/null 2>&1 & echo $!; exec "$@"`, w.path("other")}, p.cmd.Args...)
	p.cmd.Path = "/bin/sh"
	p.start().ends(76)
	defer syscall.Kill(atoi(t, p.out.String()), syscall.SIGKILL)
	after := nowStamp()
	await(t, "the process that the command did not start", func() bool { return stamped(w.path("other")) > after })
}

// TestNestedLoss: the command of a run inside dies with the lock of the run around it.
func TestNestedLoss(t *testing.T) {
	w := newWorld(t)
	p, _ := w.loses(func(*process) { w.cut() }, "--store", w.cutURL(), "run", "--ttl", lossTTL, "--grace", "0s", "x", "--", "holdfast", "run", "b")
	p.ends(76)
}

// guardOf returns the process id of a run's guard.
func guardOf(t *testing.T, run int) int {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", run))
	for _, file := range files {
		children, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(children)) {
			if args, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.HasPrefix(string(args), "holdfast-guard\x00") {
				return atoi(t, pid)
			}
		}
	}
	t.Fatalf("process %d has no guard", run)
	return 0
}

// TestKilledRun: the guard of a run that is killed kills the command, and processes that have left its group and
// session.
func TestKilledRun(t *testing.T) {
	newWorld(t).loses(func(p *process) { p.signal(syscall.SIGKILL) }, "run", "--lock-delay", "2s", "x")
}

// TestKilledGuard: without a guard the command could survive run, so all its processes are killed, and only then is
// the name free. ps and killall know the guard by its name.
func TestKilledGuard(t *testing.T) {
	p, _ := newWorld(t).loses(func(p *process) {
		guard := guardOf(t, p.cmd.Process.Pid)
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", guard)); err != nil || string(comm) != "holdfast-guard\n" {
			t.Errorf("the guard is called %q (%v)", comm, err)
		}
		testserver.Must(t, syscall.Kill(guard, syscall.SIGKILL))
	}, "run", "x")
	p.ends(128 + 9)
}

// TestGuardOutlivesSignals: the command's group may get any signal, and the guard is in it. Without its
// guard the command would be killed.
func TestGuardOutlivesSignals(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "until", w.path("go"))
	p.awaitOutput("up")
	guard := guardOf(t, p.cmd.Process.Pid)
	for s := syscall.Signal(1); s <= 64; s++ {
		switch s {
		case syscall.SIGKILL, syscall.SIGSTOP:
			continue
		case 32, 33, 34: // the C library's own
			continue
		}
		if err := syscall.Kill(guard, s); err != nil {
			t.Fatalf("signal %d to the guard: %v", s, err)
		}
	}
	w.run(75, "run", "-n", "x", "--", "true") // time for the guard to end, if it did
	testserver.Must(t, os.WriteFile(w.path("go"), nil, 0o600))
	p.ends(0)
}

// fullPipe returns a pipe that takes nothing more, and from which nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	testserver.Must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(w.Fd())
	testserver.Must(t, syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	testserver.Must(t, syscall.SetNonblock(fd, false))
	return w
}

// TestNobodyReadsTheErrors: a run whose standard error is a full pipe kills its command and ends when its
// lock is lost, with the exit code of a loss. So does the guard of one that is killed.
func TestNobodyReadsTheErrors(t *testing.T) {
	for name, killed := range map[string]bool{"run kills": false, "the guard kills": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			file, next := w.path("stamps"), w.path("next")
			p := w.command("run", "--ttl", lossTTL, "--lock-delay", "2s", "--grace", "1s", "--max-hold", "1s", "x", "--", "tree", file)
			p.cmd.Stderr = fullPipe(t)
			p.start()
			awaitStamps(t, treeFiles(file)...)
			waiter := w.start("run", "x", "--", "once", next)
			if killed {
				p.signal(syscall.SIGKILL)
			} else {
				p.ends(76)
			}
			waiter.ends(0)
			goneBefore(t, next, treeFiles(file)...)
		})
	}
}

// newContainerWorld has its store where a container may write.
func newContainerWorld(t *testing.T) *world {
	w := newWorld(t)
	w.locks = filepath.Join(w.path("data"), "locks")
	w.env = append(w.env, "HOLDFAST_STORE=file://"+w.locks)
	return w
}

// ownProc gives a container a /proc of its own.
const ownProc = "mount -t proc proc /proc"

// TestProcessOne: as process 1 of a container run passes SIGTERM on and releases the lock. No process of the command
// survives, and zombies do not accumulate.
func TestProcessOne(t *testing.T) {
	w := newContainerWorld(t)
	file := filepath.Join(w.path("data"), "stamps")
	p := w.container(ownProc, "holdfast", "run", "x", "--", "sh", "-c", `trap "exit 7" TERM
for i in 1 2 3 4 5; do sh -c 'setsid true & true & exit 0'; done
while grep -ls "^State:.Z" /proc/[0-9]*/status >/dev/null; do sleep 0.01; done
tree "$0" & wait`, file).start()
	awaitStamps(t, treeFiles(file)...)
	w.run(75, "run", "-n", "x", "--", "true")
	p.signal(syscall.SIGTERM)
	p.ends(7)
	stampsStop(t, file)
	w.run(0, "run", "-n", "x", "--", "true") // given back, not left to its TTL
}

// TestLossInContainer: the end of process 1 would end all processes. When run is not process 1, it must
// find processes that have left the group.
func TestLossInContainer(t *testing.T) {
	w := newContainerWorld(t)
	file := filepath.Join(w.path("data"), "stamps")
	p := w.container(ownProc, "sh", "-c", `holdfast --store "$0" run --ttl 2s --grace 0s x -- tree "$1"; echo "code $?"; cat`, w.cutURL(), file)
	stdin, err := p.cmd.StdinPipe()
	testserver.Must(t, err)
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
}

// TestWithoutProc: where /proc is missing, as in a bare chroot, run finds its own program for the guard by PATH.
func TestWithoutProc(t *testing.T) {
	w := newContainerWorld(t)
	w.env = append(w.env, "HOLDFAST_STORE=sqlite://"+filepath.Join(w.path("data"), "locks.db")) // file:// needs /proc
	p := w.container("umount -l /proc", "holdfast", "run", "x", "--", "sh", "-c", "echo ran; exit 7").start()
	p.ends(7)
	p.expectOut("ran")
}

// stampsStop expects that no process of a tree writes any more. One that is alive writes each half a millisecond.
func stampsStop(t *testing.T, file string) {
	t.Helper()
	last := map[string]driver.Instant{}
	for _, f := range treeFiles(file) {
		last[f] = stamped(f)
	}
	time.Sleep(200 * time.Millisecond)
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
	programs := w.path("programs")
	self, err := os.Executable()
	text, readErr := os.ReadFile(self)
	err = errors.Join(err, readErr, os.MkdirAll(programs, 0o755), os.MkdirAll(w.path("data"), 0o777),
		os.Chmod(w.path("data"), 0o777), os.Chmod(w.dir, 0o755), os.Chmod(filepath.Dir(w.dir), 0o755))
	for _, name := range []string{"holdfast", "stamp", "tree"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(programs, name), text, 0o755))
	}
	if err != nil {
		w.t.Fatal(err)
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
