//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestKilledHolderFreesAtOnce(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Try of a name held by another process: %v", err)
	}
	waiting := granted(t, c, request("x"))
	p.kill()
	soon(t, "the holder was killed", waiting)
	p = obeying(t, dir)
	p.ask("ok", "try y 1m 0s")
	p.kill()
	time.Sleep(aliveFor)
	free(t, c, "y", "the holder was killed")
}

func TestKilledHolderLockDelay(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	const delay = 300 * time.Millisecond
	p.ask("ok", "try x 1m %v", delay)
	arrived := arrival(t, c, request("x"))
	start := time.Now()
	p.kill()
	if after := (<-arrived).Sub(start); after < delay || after > delay+2*poll {
		t.Errorf("the name of a killed process opened after %v, with a lock-delay of %v", after, delay)
	}
}

// A killed process's hold ends at once, and its name stays closed for the minimum hold,
// counted from when it was taken.
func TestKilledHolderMinHold(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	const minHold = 800 * time.Millisecond
	start := time.Now()
	p.ask("ok", "try x 1m 0s %v", minHold)
	p.kill()
	time.Sleep(aliveFor)
	for {
		_, err := c.Try(t.Context(), request("x"))
		if after := time.Since(start); err == nil && after < minHold {
			t.Errorf("P5: the name of a killed process opened after %v, with a minimum hold of %v", after, minHold)
		}
		held := (*driver.HeldError)(nil)
		switch {
		case err == nil:
			return
		case !errors.As(err, &held):
			t.Fatal(err)
		case held.ExpiresIn > minHold:
			t.Fatalf("P5: the name of a killed process is to open in %v", held.ExpiresIn)
		}
		time.Sleep(held.ExpiresIn)
	}
}

func TestStoppedHolderLosesAtTTL(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	const ttl = 600 * time.Millisecond
	start := time.Now()
	p.ask("ok", "try x %v 0s", ttl)
	p.signal(syscall.SIGSTOP)
	arrived := arrival(t, c, request("x"))
	if after := (<-arrived).Sub(start); after < ttl || after > ttl+2*poll {
		t.Errorf("the name of a stopped process opened after %v, with a TTL of %v", after, ttl)
	}
	p.signal(syscall.SIGCONT)
	p.ask("gone", "renew")
	p.ask("gone", "release")
}

func TestKilledWaiterIsSkipped(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	p.ask("held", "queue x")
	waiting := granted(t, c, request("x"))
	p.kill()
	time.Sleep(aliveFor)
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	soon(t, "the waiter before it was killed, and the name released", waiting)
}

func TestStoppedWaiterDelaysTwoPolls(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	p.ask("held", "queue x")
	p.signal(syscall.SIGSTOP)
	arrived := arrival(t, c, request("x"))
	start := time.Now()
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	if late := (<-arrived).Sub(start); late > 3*poll {
		t.Errorf("P7: a stopped waiter delayed the next by %v", late)
	}
}

// TestStoppedInsideAnOperation: a process that stands still with the record locked
// closes the name neither for others nor for good, and its change does not
// count once others have gone on without it.
func TestStoppedInsideAnOperation(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	free(t, c, "x", "a new name")
	p.ask("inside", "operate x") // which finds the name free
	start := time.Now()
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < stuckAfter || took > 2*poll {
		t.Errorf("P7: a process stopped with the record locked delayed others by %v", took)
	}
	p.ask("held", "goon")
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P1: a process that was stopped inside an operation took the hold away: %v", r.Err)
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0], c.Close())
	if files, _ := filepath.Glob(filepath.Join(dir, "names", "*")); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
}

// TestPausedInsideAnOperation: what the stopped process did does count if it
// went on before others lost patience.
func TestPausedInsideAnOperation(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	free(t, c, "x", "a new name")
	p.ask("inside", "operate x")
	time.AfterFunc(stuckAfter/4, func() { p.tell("go on") })
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try after another process got the hold: %v", err)
	}
	p.expect("ok")
	p.ask("ok", "renew")
}

// TestKilledWhileWriting kills processes that do nothing but change a record, of a bit less
// than a page and of more: the record must be believable each time.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	c := attachTest(t, dir)
	changes := 0
	for i := range 40 {
		p := spawn(t, "change", dir, nil)
		p.expect("ready")
		for range i % 10 {
			p.expect("and on")
			changes++
		}
		p.kill()
		for _, name := range []string{"short", "long"} {
			if err := c.change(t.Context(), name, func(*operation) error { return nil }); err != nil {
				t.Fatalf("P1: after a kill: %v", err)
			}
		}
	}
	t.Logf("%d thousand changes", changes)
}

// TestFileSizeLimit: a process that may not write a page writes nothing.
func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	free(t, openTest(t, dir), "x", "a new name")
	p := &child{t: t, cmd: exec.Command("sh", "-c", `ulimit -f 1; exec "$0"`, self)}
	p.start(childEnv + "=obey:" + dir)
	if text := p.expect("failed:"); !strings.Contains(text, "ulimit -f") {
		t.Errorf("a process that may not write a page was told %q", text)
	}
}

func TestHandOffBetweenProcesses(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	r := request("x")
	var total time.Duration
	const rounds = 50
	for range rounds {
		p.ask("ok", "try x 1m 0s")
		waiting := granted(t, c, r)
		start := time.Now()
		p.ask("ok", "release")
		soon(t, "another process has released", waiting)
		total += time.Since(start)
		if err := c.Release(t.Context(), []driver.Grant{{Request: r, Token: 1}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("release to grant in another process: %v on average", total/rounds)
	if total/rounds > poll/20 {
		t.Errorf("P7: a release reached the waiter in another process after %v on average", total/rounds)
	}
}

// TestNothingIsInherited: a program started by a holder has none of its
// descriptors, and does not keep the holder alive.
func TestNothingIsInherited(t *testing.T) {
	dir := t.TempDir()
	c, p := openTest(t, dir), obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	p.ask("held", "try x 1m 0s") // and again, so that its record is kept open
	pid := p.ask("pid", "spawn")
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(id, syscall.SIGKILL)
	count := func(pid int) (n int) {
		fds, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		if err != nil || len(fds) == 0 {
			t.Fatalf("descriptors of process %d: %q, %v", pid, fds, err)
		}
		for _, fd := range fds {
			if path, err := os.Readlink(fd); err == nil && strings.HasPrefix(path, dir) {
				n++
			}
		}
		return n
	}
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		if n := count(p.cmd.Process.Pid); n < 3 {
			t.Errorf("the holder has %d descriptors in the directory: the test looks at the wrong ones", n)
		}
		if n := count(id); n != 0 {
			t.Errorf("a program started by the holder has %d of its descriptors", n)
		}
	}
	p.kill()
	time.Sleep(aliveFor)
	free(t, c, "x", "the holder was killed, what it started lives on")
}
