//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// asIfStopped locks a file of the directory, as a process does that is stopped while it has the flock.
func asIfStopped(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
}

// another returns a client of the directory that shares nothing with c, as that of another process.
func another(t *testing.T, c *client) *client {
	t.Helper()
	s, err := newStore(c.store.dir)
	must(t, err)
	other := newClient(s, driver.HostClock)
	t.Cleanup(func() { other.Close() })
	local.Delete(c.id)
	return other
}

func takeIn(t *testing.T, c *client, name string) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context(), driver.Request{Name: name, Owner: "owner of " + name, TTL: time.Minute, Tokens: 1})
	if err != nil {
		t.Fatalf("P7: %s is free: %v", name, err)
	}
	return g
}

// TestStoppedWhileRemoving: a process is stopped while it deletes the idle record of x. New processes take all
// other names of the directory.
func TestStoppedWhileRemoving(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	c.Release(t.Context(), []driver.Grant{takeIn(t, c, "x")})
	if unlock, ok := c.store.place.Load().lockPaths(); ok {
		defer unlock()
	}
	asIfStopped(t, filepath.Join(dir, namesName, fileName("x")))
	newcomer := another(t, c)
	takeIn(t, newcomer, "y")
}

// TestOtherBootMeanwhile: processes that are shown different boot ids begin to use a directory at the same time, so
// that neither sees the other live. Neither takes what the other holds or waits for (P1).
func TestOtherBootMeanwhile(t *testing.T) {
	dir := t.TempDir()
	a := openTest(t, dir)
	b := another(t, a)
	b.store.boot++
	for _, c := range []*client{a, b} {
		must(t, c.store.attach(t.Context(), storeTime(c.clock.Now())))
	}
	ga, gb := takeIn(t, a, "a"), takeIn(t, b, "b")
	local.Delete(a.id)
	for _, try := range []struct {
		c    *client
		name string
	}{{a, "b"}, {b, "a"}} {
		if _, err := try.c.Try(t.Context(), request(try.name)); !errors.Is(err, errOtherBoot) {
			t.Errorf("P1: Try of a name that is held on another boot: %v", err)
		}
		if _, err := try.c.Inspect(t.Context(), try.name); !errors.Is(err, errOtherBoot) {
			t.Errorf("Inspect of a name that is held on another boot: %v", err)
		}
	}
	must(t, a.Release(t.Context(), []driver.Grant{ga})[0], b.Release(t.Context(), []driver.Grant{gb})[0])
	takeIn(t, a, "b")
	must(t, a.Close(), b.Close())
	a = openTest(t, dir)
	b = another(t, a)
	b.store.boot += 2
	takeIn(t, a, "c")
	if err := b.attach(t.Context()); !errors.Is(err, errOtherBoot) {
		t.Errorf("a client of a third boot, beside one that lives: %v", err)
	}
}

// TestBootFileDeleted: a cleaner has deleted the file boot while a client holds a name. Others still see the hold.
func TestBootFileDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	g := takeIn(t, c, "x")
	must(t, os.Remove(filepath.Join(dir, bootFile(c.store.boot))))
	other := another(t, c)
	if info, err := other.Inspect(t.Context(), "x"); err != nil || len(info.Holders) != 1 || info.Holders[0].Token != g.Token {
		t.Errorf("the holder with token %d is shown as %+v (%v)", g.Token, info, err)
	}
	if _, err := other.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: time.Minute, Tokens: 1}); err == nil {
		t.Error("P1: a second hold on x")
	}
}

// TestFilesCleanedAway: a cleaner has deleted all files of the directory and left the folders. It is used again.
func TestFilesCleanedAway(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	takeIn(t, c, "x")
	c.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	below, err2 := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, file := range append(files, below...) {
		if info, err := os.Lstat(file); err == nil && !info.IsDir() {
			must(t, os.Remove(file))
		}
	}
	takeIn(t, openTest(t, dir), "x")
}

// TestLockFileDeleted: a cleaner has deleted the lock file while a process has it locked. Others make another one.
func TestLockFileDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	takeIn(t, c, "x")
	p := c.store.place.Load()
	for range 2 {
		unlock, ok := p.lockPaths()
		if !ok {
			t.Fatal("the paths cannot be locked")
		}
		defer unlock()
		if _, ok := p.lockPaths(); ok {
			t.Error("the paths are locked twice")
		}
		must(t, os.Remove(filepath.Join(dir, lockName)))
	}
}
