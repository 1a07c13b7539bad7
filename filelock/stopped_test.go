//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
}

func openDir(t *testing.T, dir string) *client {
	t.Helper()
	d, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.(*client)
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
	c := openDir(t, dir)
	c.Release(t.Context(), []driver.Grant{takeIn(t, c, "x")})
	asIfStopped(t, filepath.Join(dir, lockName))
	asIfStopped(t, filepath.Join(dir, "names", fileName("x")))
	newcomer := newClient(newStore(c.store.dir), driver.HostClock)
	defer newcomer.Close()
	takeIn(t, newcomer, "y")
}

// TestOtherBootMeanwhile: between the beginning of a client and the moment from which others see that it lives, a
// process that is shown another boot id finds nobody alive, and makes the records fit for its own boot. The client
// must not go on (P1).
func TestOtherBootMeanwhile(t *testing.T) {
	if id, err := bootID(); err != nil || id == "wall clock" {
		return // boots are not told apart here
	}
	dir := t.TempDir()
	c := openDir(t, dir)
	if err := c.store.attach(t.Context(), storeTime(c.clock.Now())); err != nil {
		t.Fatal(err)
	}
	if err := writeBoot(c.store.place.Load().top, boot{"another", 1, 1}); err != nil {
		t.Fatal(err)
	}
	if g, err := c.Try(t.Context(), driver.Request{Name: "x", Owner: "o", TTL: time.Minute, Tokens: 1}); err == nil {
		t.Errorf("P1: a hold (token %d) in a directory of another boot", g.Token)
	}
	if ids, _ := c.store.others(); len(ids) > 0 {
		t.Errorf("P9: the refused client has left %v", ids)
	}
}

// TestBootFileDeleted: a cleaner has deleted the file boot while a client holds a name. Others still see the hold.
func TestBootFileDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openDir(t, dir)
	g := takeIn(t, c, "x")
	if err := os.Remove(filepath.Join(dir, bootName)); err != nil {
		t.Fatal(err)
	}
	other := newClient(newStore(c.store.dir), driver.HostClock)
	defer other.Close()
	local.Delete(c.id) // as a client of another process
	defer local.Store(c.id, c)
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
	c := openDir(t, dir)
	takeIn(t, c, "x")
	c.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	below, err2 := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, file := range append(files, below...) {
		if info, err := os.Lstat(file); err == nil && !info.IsDir() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	takeIn(t, openDir(t, dir), "x")
}

// TestLockFileDeleted: a cleaner has deleted the lock file while it is open. Whoever locks the deleted one changes no paths.
func TestLockFileDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openDir(t, dir)
	takeIn(t, c, "x")
	if !c.store.paths.tryLock() {
		t.Fatal("the paths are locked")
	}
	c.store.paths.unlock()
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if c.store.paths.tryLock() {
		t.Error("the lock of a file that nobody else can open was taken")
	}
}
