//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestOpenRefuses(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(plain, nil, 0o600))
	for raw, want := range map[string]string{
		"file://":                    "no absolute directory",
		"file:locks":                 "no absolute directory",
		"file://host/locks":          `a host, "host"`,
		"file://locks":               "three slashes",
		"file://u:secret@/locks":     "more than a directory",
		"file:///locks#x":            "more than a directory",
		"file:///locks?hf.x=1":       `unknown URL parameter "hf.x"`,
		"file:///locks?mode=0700":    `unknown URL parameter "mode"`,
		"file://" + plain:            "not a directory",
		"file://" + plain + "/below": "not a directory",
	} {
		u, err := url.Parse(raw)
		must(t, err)
		d, err := driver.Open(t.Context(), u)
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("opening %s: %v, which does not say %q", raw, err, want)
		}
	}
	for _, dir := range []string{"", "locks", "./locks"} {
		if _, err := Open(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("Open took the directory %q", dir)
		}
	}
}

func TestOneStoreByAnyPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "locks %")
	u := &url.URL{Scheme: "file", Path: dir}
	a, err := driver.Open(t.Context(), u)
	must(t, err)
	defer a.Close()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening made the directory: %v", err)
	}
	must(t, a.(*client).attach(t.Context()))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	b := attachTest(t, link)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory was made as %v, %v", info, err)
	}
	if a.Caps().Store != b.Caps().Store || !strings.HasPrefix(a.Caps().Store, "file://") {
		t.Errorf("one directory is %q and %q", a.Caps().Store, b.Caps().Store)
	}
	if a.(*client).store != b.store {
		t.Error("two clients of one directory have a store each")
	}
}

// left returns the files in the directories of records and clients.
func left(t testing.TB, dir string) []string {
	names, err1 := filepath.Glob(filepath.Join(dir, namesName, "*"))
	clients, err2 := filepath.Glob(filepath.Join(dir, clientsName, "*"))
	must(t, errors.Join(err1, err2))
	return append(names, clients...)
}

// TestNothingIsLeft: the last client leaves no record and no file of its own.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	for i := range 20 {
		name := fmt.Sprint("x/", i, strings.Repeat("y", 20*i))
		free(t, a, name, "a new name")
		free(t, b, name, "a name used by another client")
	}
	if n := len(left(t, dir)); n != 20+2 {
		t.Errorf("%d files while two clients are open and 20 names idle", n)
	}
	must(t, a.Close())
	must(t, b.Close())
	if files := left(t, dir); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
	if err := a.Close(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
}

// TestIdleRecordsAreDeleted: a client deletes what it left idle, and not what
// has come into use again.
func TestIdleRecordsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	for _, name := range []string{"a", "b", "c"} {
		free(t, c, name, "a new name")
	}
	g, err := c.Try(t.Context(), request("b"))
	must(t, err)
	long := storeTime(c.clock.Now()).Add(idleFor) // since all were used, but for c
	time.Sleep(time.Millisecond)
	free(t, c, "c", "it is idle")
	c.cleanIdleAt(long)
	for name, want := range map[string]bool{"a": false, "b": true, "c": true} {
		if _, err := os.Stat(filepath.Join(dir, namesName, name+".lock")); (err == nil) != want {
			t.Errorf("P9: the record of %s: %v", name, err)
		}
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0])
	free(t, c, "a", "its record was deleted")
}

// TestTheDeadAreCleanedUp: the next client deletes what a killed one left idle.
func TestTheDeadAreCleanedUp(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	for i := range 5 {
		p.Ask("ok", "try x%d 1m 0s", i)
	}
	p.Ask("ok", "try y 1m 1m")
	p.Kill()
	c := attachTest(t, dir)
	files := left(t, dir)
	if len(files) != 2 || filepath.Base(files[0]) != "y.lock" || filepath.Base(files[1]) != c.id {
		t.Errorf("P9: after a crash and an opening there are %q", files)
	}
	if _, err := c.Try(t.Context(), request("y")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P5: the lock-delay of a killed process was not kept: %v", err)
	}
}

// reboot makes the directory and its records ones of another boot.
func reboot(t testing.TB, dir string) {
	t.Helper()
	const other = 1
	must(t, os.Rename(filepath.Join(dir, bootFile(hash(bootOf(t)))), filepath.Join(dir, bootFile(other))))
	names, err := openFolder(nil, filepath.Join(dir, namesName))
	must(t, err)
	defer names.close()
	files, err := names.names()
	must(t, err)
	for _, file := range files {
		st, err := names.readRecord(t.Context(), file, newMemory(&store{}))
		if errors.Is(err, errDamaged) || errors.Is(err, errForeign) {
			continue
		}
		must(t, err)
		st.boot = other
		must(t, overwrite(names.at(file), recordBytes(st)))
	}
}

func bootOf(t testing.TB) string {
	t.Helper()
	id, err := bootID()
	must(t, err)
	return id
}
