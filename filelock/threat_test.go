//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// The tests of what the package's documentation says of shared directories.

// write makes a file, and the directories above it.
func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// snapshot describes all that is below a directory.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		text := fmt.Sprint(info.Mode(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Ino)
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %q", content)
		}
		all[path] = text
		return nil
	})
	must(t, err)
	return all
}

// unchanged fails the test if something below a directory is not as it was.
func unchanged(t testing.TB, dir string, before map[string]string, what string) {
	t.Helper()
	if after := snapshot(t, dir); !reflect.DeepEqual(after, before) {
		t.Errorf("%s changed the directory from\n%v\nto\n%v", what, before, after)
	}
}

// TestForeignDirectoryIsRefused: a directory that is in use for something else is
// left as it is.
func TestForeignDirectoryIsRefused(t *testing.T) {
	for name, fill := range map[string]func(dir string){
		"a file":             func(dir string) { write(t, dir+"/notes.txt", "") },
		"names":              func(dir string) { write(t, dir+"/names/people.csv", "not a lock\n") },
		"a lock of others":   func(dir string) { write(t, dir+"/composer.lock", "not a lock\n") },
		"a file beside ours": func(dir string) { write(t, dir+"/"+clientsName+"/x", ""); write(t, dir+"/people.csv", "") },
		"a temporary file":   func(dir string) { write(t, dir+"/1-2-3.tmp", "people\n") },
		"names is a link":    func(dir string) { must(t, os.Symlink(t.TempDir(), dir+"/"+namesName)) },
		"clients is a link": func(dir string) {
			must(t, os.Mkdir(dir+"/"+namesName, 0o700), os.Symlink(t.TempDir(), dir+"/"+clientsName))
		},
	} {
		dir := t.TempDir()
		fill(dir)
		before := snapshot(t, dir)
		d, err := Open(t.Context(), Options{Dir: dir})
		if err == nil {
			d.Close()
		}
		var open *driver.OpenError
		if !errors.As(err, &open) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: opening returned %v", name, err)
		}
		if !strings.Contains(name, "link") && !strings.Contains(err.Error(), "name an empty directory") {
			t.Errorf("%s: the error does not say what to do: %v", name, err)
		}
		if problems := CheckDir(dir); len(problems) != 1 {
			t.Errorf("%s: CheckDir found %q", name, problems)
		}
		unchanged(t, dir, before, name+": opening")
	}
}

// TestNothingForeignIsDeleted: not by the cleaning after a crash, nor after a
// reboot, nor at the end.
func TestNothingForeignIsDeleted(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	p.Ask("ok", "try x 1m 0s")
	foreign := t.TempDir()
	for _, name := range []string{
		"people.csv", "7-8-9.tmp", namesName + "/people.csv", namesName + "/composer.lock", namesName + "/x.lock.old", namesName + "/1-2-3.tmp",
		namesName + "/below/y.lock", clientsName + "/acme", clientsName + "/" + idC, clientsName + "/" + idD + ".tmp",
	} {
		write(t, filepath.Join(dir, name), name)
		write(t, filepath.Join(foreign, name), name)
		old := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	check := func(when string) {
		t.Helper()
		for path := range snapshot(t, foreign) {
			name, _ := filepath.Rel(foreign, path)
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				t.Errorf("%s: data loss: %v", when, err)
			}
		}
	}
	p.Kill()
	c := attachTest(t, dir)
	check("after a crash")
	free(t, c, "x", "its holder was killed")
	if _, err := c.Try(t.Context(), request("composer")); !errors.Is(err, errDamaged) {
		t.Errorf("Try of a name whose file is another's: %v", err)
	}
	c.Close()
	check("after a close")
	reboot(t, dir)
	attachTest(t, dir).Close()
	check("after a reboot")
}

// TestLinksAreNotFollowed: whoever may write in the directory cannot have others
// write, lock or delete something elsewhere by a link.
func TestLinksAreNotFollowed(t *testing.T) {
	for name, link := range map[string]func(old, new string) error{"symbolic": os.Symlink, "hard": os.Link} {
		for _, at := range []string{"holdfast-names/x.lock", "holdfast-names/x.lock.old", lockName, bootFile(hash(bootOf(t))), clientsName + "/" + idC} {
			dir, home := t.TempDir(), t.TempDir()
			c := attachTest(t, dir)
			free(t, c, "x", "a new name")
			c.Close()
			// The victim is a record of the same name: one that would be believed.
			victim := attachTest(t, home)
			_, err := victim.Try(t.Context(), request("x"))
			must(t, err)
			path := filepath.Join(dir, at)
			os.Remove(path)
			must(t, link(filepath.Join(home, "holdfast-names/x.lock"), path))
			before := snapshot(t, filepath.Join(home, namesName))
			if d, err := Open(t.Context(), Options{Dir: dir}); err == nil {
				c := d.(*client)
				c.Inspect(t.Context(), "x")
				g, err := c.Try(t.Context(), request("x"))
				if err == nil && at == "holdfast-names/x.lock" {
					t.Errorf("%s link at %s: it is taken for a record", name, at)
				}
				if errors.Is(err, driver.ErrHeld) {
					t.Errorf("%s link at %s: the hold of another directory is seen", name, at)
				}
				if p := c.store.place.Load(); p != nil {
					if f, err := openRecord(p.names, "x.lock", os.O_RDWR); err == nil {
						p.steal(f, newMemory(c.store))
						f.close()
					}
				}
				c.Release(t.Context(), []driver.Grant{g})
				c.Close()
			}
			if f, err := os.OpenFile(filepath.Join(home, "holdfast-names/x.lock"), os.O_RDONLY, 0); err != nil {
				t.Error(err)
			} else {
				if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
					t.Errorf("%s link at %s: the victim's file was locked: %v", name, at, err)
				}
				f.Close()
			}
			unchanged(t, filepath.Join(home, namesName), before, name+" link at "+at+": use of the directory")
		}
	}
}

// craft makes a record that somebody made up.
func craft(t testing.TB, c *client, st *state) {
	t.Helper()
	must(t, os.WriteFile(c.store.place.Load().names.at(fileName(st.name)), recordBytes(st), 0o600))
}

// waiting is a record in which somebody is to be told of a grant.
func waiting(c *client, name, client string) *state {
	now := storeTime(driver.HostClock.Now())
	st := &state{name: name, boot: c.store.boot}
	st.Queue = []record.Place{{
		Request: driver.Request{Name: name, Owner: "evil", TTL: time.Minute}, Client: client, Joined: now, Until: now,
	}}
	return st
}

// TestCraftedRecord: a client that is a path closes the name, and nothing more.
func TestCraftedRecord(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	victim := filepath.Join(home, "authorized_keys")
	write(t, victim, "ssh-ed25519 AAAA...\n")
	before := snapshot(t, home)
	c := attachTest(t, dir)
	rel, err := filepath.Rel(filepath.Join(dir, clientsName), victim)
	must(t, err)
	for _, id := range []string{rel, victim, "..", ".", "../names/y.lock", idC[1:], strings.ToUpper(idD), idC + "\x00"} {
		craft(t, c, waiting(c, "x", id))
		if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, errDamaged) {
			t.Errorf("Try with the client %q in the record: %v", id, err)
		}
		if _, err := c.Inspect(t.Context(), "x"); !errors.Is(err, errDamaged) {
			t.Errorf("Inspect with the client %q in the record: %v", id, err)
		}
	}
	unchanged(t, home, before, "a crafted record")
	must(t, os.Remove(filepath.Join(dir, namesName, "x.lock")))
}

// TestRequestsAreChecked: nobody writes what nobody could read (P10).
func TestRequestsAreChecked(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	for _, spoil := range []func(*driver.Request){
		func(r *driver.Request) { r.Name = "a//b" },
		func(r *driver.Request) { r.Owner = "" },
		func(r *driver.Request) { r.Owner = strings.Repeat("x", maxOwner+1) },
		func(r *driver.Request) { r.Note = strings.Repeat("x", maxNote+1) },
		func(r *driver.Request) { r.TTL = maxDuration + 1 },
		func(r *driver.Request) { r.LockDelay = -1 },
		func(r *driver.Request) { r.Slots = -1 },
		func(r *driver.Request) { r.Tokens = tokenBlock + 1 },
		func(r *driver.Request) { r.Mode = 3 },
	} {
		r := request("x")
		spoil(&r)
		if _, err := c.Try(t.Context(), r); err == nil || errors.Is(err, errDamaged) {
			t.Errorf("Try of %.60v: %v", r, err)
		}
	}
	if names := snapshot(t, dir); len(names) != 1 {
		t.Errorf("P10: a request was refused after the directory was changed: %v", names)
	}
}

// TestWriterCanTakeAHold: whoever may write in the directory can end holds, and
// the holder learns of it when it next renews.
func TestWriterCanTakeAHold(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	must(t, err, os.Remove(filepath.Join(dir, namesName, "x.lock")))
	if err := renew(c, g); !driver.Gone(err) {
		t.Errorf("P2: renewing a hold whose record was deleted: %v", err)
	}
}

// TestReplacedDirectory: a client does not go on in a directory that was moved
// away, where it would hold what others hold in the new one.
func TestReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	old := openTest(t, dir)
	g, err := old.Try(t.Context(), request("x"))
	must(t, err)
	must(t, os.Rename(dir, dir+".old"))
	if err := renew(old, g); !errors.Is(err, errReplaced) {
		t.Errorf("P1: renewing in a directory that was moved away: %v", err)
	}
	if _, err := old.Try(t.Context(), request("y")); !errors.Is(err, errReplaced) {
		t.Errorf("P1: Try in a directory that was moved away: %v", err)
	}
	p := obeying(t, dir)
	p.Ask("ok", "try x 1m 0s")
	if _, err := old.Try(t.Context(), request("x")); !errors.Is(err, errReplaced) {
		t.Errorf("P1: Try in a directory that was replaced: %v", err)
	}
	other, err := Open(t.Context(), Options{Dir: dir + ".old"})
	must(t, err)
	defer other.Close()
	if _, err := other.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Try where the directory is now: %v", err)
	}
	must(t, os.RemoveAll(dir+".old"))
	if err := renew(old, g); !driver.Gone(err) {
		t.Errorf("P2: renewing in a directory that was deleted: %v", err)
	}
	if _, err := old.Try(t.Context(), request("y")); !errors.Is(err, errReplaced) {
		t.Errorf("Try in a directory that was deleted: %v", err)
	}
}

func TestFileMode(t *testing.T) {
	for dir, want := range map[fs.FileMode]fs.FileMode{
		0o700: 0o600, 0o711: 0o600, 0o755: 0o600, 0o750: 0o600, 0o770: 0o660, 0o775: 0o660, 0o777: 0o666, 0o707: 0o606,
		0o722: 0o600, 0o766: 0o600, 0o730: 0o660, fs.ModeSticky | 0o777: 0o666, fs.ModeSetgid | 0o770: 0o660,
	} {
		if got := fileMode(dir); got != want {
			t.Errorf("the files of a directory %v get %v, not %v", dir, got, want)
		}
	}
}
