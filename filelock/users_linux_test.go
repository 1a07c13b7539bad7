package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func init() {
	childModes["member"] = member
	childModes["reader"] = reader
}

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

// end lets the child close its client.
func (c *child) end() {
	c.t.Helper()
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the child ended with %v", err)
	}
}

// reader is a child that opens what it can, to lock it.
func reader(dir string) error {
	locked := 0
	filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		fd, err := openFD(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		locked++
		syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		fmt.Println("opened", path)
		return nil
	})
	d, err := Open(context.Background(), Options{Dir: dir})
	if err == nil {
		d.Close()
	}
	var open *OpenError
	if !errors.As(err, &open) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "belongs to") {
		return fmt.Errorf("opening a directory that this user may not write in: %w", err)
	}
	fmt.Println("fine", locked)
	fmt.Scanln()
	return nil
}
