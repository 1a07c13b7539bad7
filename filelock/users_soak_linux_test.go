//go:build soak

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func init() { parts["member"] = part(member) }

// team is the group of the members.
const team = 4242

// shared makes a directory of a mode, of the team's group, that other users can
// reach.
func shared(t testing.TB, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(open755(t), "locks")
	must(t, os.Mkdir(dir, 0o700))
	if os.Getuid() == 0 {
		must(t, os.Chown(dir, -1, team))
	}
	must(t, os.Chmod(dir, mode))
	return dir
}

// open755 is a temporary directory that other users can enter.
func open755(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		must(t, os.Chmod(up, 0o755))
	}
	return dir
}

// member is obey with a umask that keeps everything to itself.
func member(dir string) error {
	syscall.Umask(0o077)
	return obey(dir)
}

// user returns the credential of another user, with the team's group or without;
// nil, which means the test's own, where the test is not root and can be nobody
// else.
func user(uid uint32, groups ...uint32) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}
}

// spawnAs starts a child as another user, from a copy of the program beside dir: it may
// lie where that user cannot go.
func spawnAs(t testing.TB, part, dir string, as *syscall.Credential) *testserver.Child {
	t.Helper()
	program := filepath.Join(filepath.Dir(dir), "program")
	if _, err := os.Stat(program); err != nil {
		self, err := os.ReadFile("/proc/self/exe")
		must(t, err, os.WriteFile(program, self, 0o755))
	}
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return testserver.StartChildBy(t, cmd, part, dir)
}

// TestUsersShare: users who may write in the directory share its locks, whatever
// their umasks, and each can go on where another was killed or stopped.
func TestUsersShare(t *testing.T) {
	for _, mode := range []os.FileMode{0o770, 0o770 | os.ModeSetgid, 0o775, 0o777, 0o777 | os.ModeSticky, 0o770 | os.ModeSticky} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := shared(t, mode)
			a, b := spawnAs(t, "member", dir, user(64001, team)), spawnAs(t, "member", dir, user(64002, team))
			a.Expect("ready")
			b.Expect("ready")
			a.Ask("ok", "try x 1m 0s")
			b.Ask("held", "queue x")
			a.Ask("ok", "release")
			b.Ask("ok", "wait")
			b.Ask("ok", "renew")
			a.Ask("held", "try x 1m 0s")
			b.Ask("ok", "release")
			a.Ask("inside", "operate x") // and stays there
			b.Ask("ok", "try x 1m 0s")
			a.Ask("held", "go on")
			a.Ask("held", "queue x")
			b.Kill()
			a.Ask("ok", "wait")
			a.Ask("ok", "release")
			b = spawnAs(t, "member", dir, user(64002, team))
			b.Expect("ready") // it cleans up after the one that was killed
			a.End()
			b.End()
			if files := left(t, dir); len(files) != 0 {
				t.Errorf("P9: files are left: %q", files)
			}
			reboot(t, dir)
			b = spawnAs(t, "member", dir, user(64002, team))
			b.Expect("ready")
			b.Ask("ok", "try x 1m 0s")
		})
	}
}

// TestReaderCannotLock: a user who may only look into the directory may open none of its files, and so locks nothing
// there.
func TestReaderCannotLock(t *testing.T) {
	for _, mode := range []os.FileMode{0o755, 0o750, 0o711, 0o744, 0o775, 0o700} {
		dir := shared(t, mode)
		c := openTest(t, dir)
		if _, err := c.Try(t.Context(), request("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Enqueue(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := os.Lstat(path)
			if err == nil && path != dir && info.Mode()&0o007 != 0 {
				t.Errorf("in a directory %v %s is %v", mode, path, info.Mode())
			}
			return err
		}))
	}
}

// TestGroupCannotBeGiven: a user who cannot give files the directory's group is
// told so; files of another group would be for other people.
func TestGroupCannotBeGiven(t *testing.T) {
	dir := shared(t, 0o770)
	if os.Getuid() == 0 {
		must(t, os.Chown(dir, 64001, team))
	}
	p := spawnAs(t, "member", dir, user(64001))
	if os.Getuid() == 0 {
		if text := p.Expect("failed:"); !strings.Contains(text, "group 4242") || !strings.Contains(text, "cannot give") {
			t.Errorf("the owner who is not of the group was told %q", text)
		}
	} else {
		p.Expect("ready")
	}
}

// TestOnlyPipesAreWritten: a ring goes into a pipe that is a client's and nowhere
// else, and never waits.
func TestOnlyPipesAreWritten(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	c := attachTest(t, dir)
	clients := c.store.place.Load().clients
	file, pipe := filepath.Join(home, "file"), filepath.Join(home, "pipe")
	write(t, file, "not a pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	r, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer r.Close()
	at := clients.at(idC)
	for name, plant := range map[string]func() error{
		"a file":            func() error { return os.WriteFile(at, []byte("not a pipe"), 0o600) },
		"a link to a file":  func() error { return os.Symlink(file, at) },
		"a file's name":     func() error { return os.Link(file, at) },
		"a link to a pipe":  func() error { return os.Symlink(pipe, at) },
		"a pipe's name":     func() error { return os.Link(pipe, at) },
		"a pipe unread":     func() error { return syscall.Mkfifo(at, 0o600) },
		"a directory":       func() error { return os.Mkdir(at, 0o700) },
		"a socket's folder": func() error { return os.Symlink(home, at) },
	} {
		must(t, plant())
		before := snapshot(t, dir)
		c.store.place.Load().wakeClient(idC, []byte("12345678"))
		unchanged(t, dir, before, name+": a ring")
		if text, err := os.ReadFile(file); string(text) != "not a pipe" {
			t.Errorf("%s: the file is %q, %v", name, text, err)
		}
		var b [8]byte
		if n, err := syscall.Read(int(r.Fd()), b[:]); n > 0 {
			t.Errorf("%s: the pipe got %q, %v", name, b[:n], err)
		}
		must(t, syscall.SetNonblock(int(r.Fd()), true))
		must(t, os.Remove(at))
	}
	must(t, syscall.Mkfifo(at, 0o600))
	w, err := os.OpenFile(at, os.O_RDWR|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer w.Close()
	for range 10000 { // more than any pipe takes
		c.store.place.Load().wakeClient(idC, []byte("12345678"))
	}
	var b [8]byte
	if n, err := syscall.Read(int(w.Fd()), b[:]); n != 8 || string(b[:]) != "12345678" {
		t.Errorf("a client's pipe got %q, %v", b[:max(n, 0)], err)
	}
}
