//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
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
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// must ends the test at an error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
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
	boot := boot{"another boot", 1, 2}.String()
	for name, fill := range map[string]func(dir string){
		"a file":                  func(dir string) { write(t, dir+"/notes.txt", "") },
		"names":                   func(dir string) { write(t, dir+"/names/people.csv", "not a lock\n") },
		"a lock of others":        func(dir string) { write(t, dir+"/names/composer.lock", "not a lock\n") },
		"clients":                 func(dir string) { write(t, dir+"/clients/acme", "a customer\n") },
		"a lock file":             func(dir string) { write(t, dir+"/lock", "") },
		"a boot file":             func(dir string) { write(t, dir+"/boot", "boot\n") },
		"empty files of our name": func(dir string) { write(t, dir+"/names/a.lock", ""); write(t, dir+"/lock", "") },
		"a marker of others":      func(dir string) { write(t, dir+"/holdfast", "#!/bin/sh\n") },
		"names beside ours":       func(dir string) { write(t, dir+"/boot", boot); write(t, dir+"/names/people.csv", "") },
		"clients beside ours":     func(dir string) { write(t, dir+"/boot", boot); write(t, dir+"/clients/"+idC, "a customer\n") },
		"a file beside ours":      func(dir string) { write(t, dir+"/boot", boot); write(t, dir+"/people.csv", "") },
		"a temporary file":        func(dir string) { write(t, dir+"/1-2-3.tmp", "people\n") },
		"names is a link": func(dir string) {
			write(t, dir+"/boot", boot)
			must(t, os.Symlink(t.TempDir(), dir+"/names"))
		},
		"boot is a link": func(dir string) {
			other := filepath.Join(t.TempDir(), "boot")
			write(t, other, boot)
			must(t, os.Symlink(other, dir+"/boot"))
		},
		"a record is a link": func(dir string) {
			write(t, dir+"/boot", boot)
			write(t, dir+"/names/y.lock", magic)
			must(t, os.Symlink("y.lock", dir+"/names/x.lock"))
		},
	} {
		dir := t.TempDir()
		fill(dir)
		before := snapshot(t, dir)
		d, err := Open(t.Context(), Options{Dir: dir})
		if err == nil {
			d.Close()
		}
		var open *OpenError
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

// TestReleasedDirectoryIsAdopted: a directory of a release that made no marker is
// taken over with the holds in it, and what readers could open they cannot any
// more.
func TestReleasedDirectoryIsAdopted(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	must(t, os.Remove(dir+"/holdfast"))
	for _, name := range []string{"lock", "boot", "names/x.lock"} {
		must(t, os.Chmod(filepath.Join(dir, name), 0o644))
	}
	c := openTest(t, dir)
	if info, err := c.Inspect(t.Context(), "x"); err != nil || len(info.Holders) != 1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a name held by an older release: %v", err)
	}
	if text, err := os.ReadFile(dir + "/holdfast"); string(text) != markerText {
		t.Errorf("the marker: %q, %v", text, err)
	}
	for _, name := range []string{"lock", "names/x.lock"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is still %v, %v", name, info.Mode(), err)
		}
	}
	p.ask("ok", "renew")
}

// TestMarkedMeanwhile: who has looked for the marker just before another process
// made it takes nothing of that process for foreign.
func TestMarkedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	attachTest(t, dir).Close()
	top, err := openFolder(dir)
	must(t, err)
	defer top.close()
	for _, name := range []string{markerName, lockName} {
		if ours, err := top.markedMeanwhile(name, errForeign); !ours || err != nil {
			t.Errorf("%s: %v, %v", name, ours, err)
		}
	}
	must(t, os.Remove(top.at(markerName)))
	if _, err := top.markedMeanwhile(lockName, errForeign); !errors.Is(err, errNotOurs) {
		t.Errorf("without the marker: %v", err)
	}
}

// TestNothingForeignIsDeleted: not by the cleaning after a crash, nor after a
// reboot, nor at the end.
func TestNothingForeignIsDeleted(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	foreign := t.TempDir()
	for _, name := range []string{
		"people.csv", "7-8-9.tmp", "names/people.csv", "names/composer.lock", "names/x.lock.old", "names/1-2-3.tmp",
		"names/below/y.lock", "clients/acme", "clients/" + idC, "clients/" + idD + ".new",
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
	p.kill()
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
		for _, at := range []string{"names/x.lock", "names/x.lock.old", "lock", "boot", "clients/" + idC, "holdfast"} {
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
			must(t, link(filepath.Join(home, "names/x.lock"), path))
			before := snapshot(t, filepath.Join(home, "names"))
			if d, err := Open(t.Context(), Options{Dir: dir}); err == nil {
				c := d.(*client)
				c.Inspect(t.Context(), "x")
				g, err := c.Try(t.Context(), request("x"))
				if err == nil && at == "names/x.lock" {
					t.Errorf("%s link at %s: it is taken for a record", name, at)
				}
				if errors.Is(err, driver.ErrHeld) {
					t.Errorf("%s link at %s: the hold of another directory is seen", name, at)
				}
				if f, err := openRecord(c.store.place.Load().names, "x.lock", os.O_RDWR, nil); err == nil {
					c.store.steal(f)
					f.close()
				}
				c.Release(t.Context(), []driver.Grant{g})
				c.Close()
			}
			if f, err := os.OpenFile(filepath.Join(home, "names/x.lock"), os.O_RDONLY, 0); err != nil {
				t.Error(err)
			} else {
				if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
					t.Errorf("%s link at %s: the victim's file was locked: %v", name, at, err)
				}
				f.Close()
			}
			unchanged(t, filepath.Join(home, "names"), before, name+" link at "+at+": use of the directory")
		}
	}
}

// craft makes a record that somebody made up.
func craft(t testing.TB, c *client, st *state) {
	t.Helper()
	text := appendState(nil, st)
	b := make([]byte, textStart, textStart+len(text))
	appendHeader(b[:0], textStart, settled, text)
	must(t, os.WriteFile(c.store.place.Load().names.at(fileName(st.name)), append(b, text...), 0o600))
}

// waiting is a record in which somebody is to be told of a grant.
func waiting(name, client string) *state {
	now := storeTime(driver.HostClock.Now())
	st := &state{name: name}
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
	rel, err := filepath.Rel(filepath.Join(dir, "clients"), victim)
	must(t, err)
	for _, id := range []string{rel, victim, "..", ".", "../names/y.lock", idC[1:], strings.ToUpper(idD), idC + "\x00"} {
		craft(t, c, waiting("x", id))
		if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, errDamaged) {
			t.Errorf("Try with the client %q in the record: %v", id, err)
		}
		if _, err := c.Inspect(t.Context(), "x"); !errors.Is(err, errDamaged) {
			t.Errorf("Inspect with the client %q in the record: %v", id, err)
		}
	}
	unchanged(t, home, before, "a crafted record")
	must(t, os.Remove(filepath.Join(dir, "names", "x.lock")))
}

// TestNumbersAreChecked: those of a record made up by somebody are refused where
// reckoning with them would overflow.
func TestNumbersAreChecked(t *testing.T) {
	for _, spoil := range []func(*state){
		func(s *state) { s.Queue[0].Until = maxInstant + 1 },
		func(s *state) { s.Queue[0].Joined = -maxInstant - 1 },
		func(s *state) { s.Queue[0].TTL = -1 },
		func(s *state) { s.Queue[0].LockDelay = maxDuration + 1 },
		func(s *state) { s.Queue[0].MinHold = maxDuration + 1 },
		func(s *state) { s.Queue[0].Slots = -1 },
		func(s *state) { s.Queue[0].Mode, s.Queue[0].Permits = driver.Slot, -1 },
		func(s *state) { s.Queue[0].Tokens = -1 },
		func(s *state) { s.Queue[0].Owner = strings.Repeat("x", maxOwner+1) },
		func(s *state) { s.Queue[0].Note = strings.Repeat("x", maxNote+1) },
		func(s *state) { s.last = maxToken + 1 },
		func(s *state) { s.last = -1 },
		func(s *state) { s.name = "a//b" },
		func(s *state) { s.name = strings.Repeat("x", driver.MaxName+1) },
		func(s *state) { s.broken = []broken{{strings.Repeat("x", maxOwner+1), 0}} },
	} {
		st := waiting("x", idC)
		if _, err := parseState(string(appendState(nil, st))); err != nil {
			t.Fatal(err)
		}
		spoil(st)
		if _, err := parseState(string(appendState(nil, st))); err == nil {
			t.Errorf("this was believed:\n%s", appendState(nil, st))
		}
	}
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
	must(t, err, os.Remove(filepath.Join(dir, "names", "x.lock")))
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
	p.ask("ok", "try x 1m 0s")
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

// TestAttachHeedsItsContext: the first operation waits for the directory no longer
// than its context allows (P11).
func TestAttachHeedsItsContext(t *testing.T) {
	dir := t.TempDir()
	attachTest(t, dir).Close()
	f, err := os.OpenFile(dir+"/booting", os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	c := openTest(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(nil) })
	if _, err := c.Try(ctx, request("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("P11: Try while the lock file is locked: %v", err)
	}
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	free(t, c, "x", "the lock file is free again")
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
