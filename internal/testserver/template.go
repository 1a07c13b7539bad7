package testserver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// prepareData makes a server's files in the directory data. Suppose that the program is MySQL's:
// it needs seconds, and a dozen packages start servers. So the program runs once, its files
// are kept in the user's cache, one set for each program and its arguments, and prepareData
// copies them.
func prepareData(t testing.TB, attr *syscall.SysProcAttr, data string, args ...string) {
	t.Helper()
	template, unlock, err := templateOf(data, args)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(template); err == nil {
		if err := copyTree(template, data); err != nil {
			t.Fatal(err)
		}
		return
	}
	prepare(t, attr, args...)
	making := template + ".making"
	if err := errors.Join(os.RemoveAll(making), copyTree(data, making), os.Rename(making, template)); err != nil {
		t.Fatal(err)
	}
}

// templateOf returns the directory that keeps the files of a program, and locks it until unlock
// is called.
func templateOf(data string, args []string) (path string, unlock func() error, err error) {
	dir, err := cacheDir("holdfast-servers")
	if err != nil {
		return "", nil, err
	}
	program, err := os.Stat(args[0])
	if err != nil {
		return "", nil, err
	}
	h := sha256.New()
	fmt.Fprintln(h, program.Size(), program.ModTime().UnixNano())
	for _, arg := range args {
		fmt.Fprintf(h, "%q", strings.ReplaceAll(arg, data, "data"))
	}
	path = filepath.Join(dir, hex.EncodeToString(h.Sum(nil)))
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return path, lock.Close, nil
}

// cacheDir returns a directory of this user's cache. There is no fallback below the temporary
// directory: another user could put programs or files there before us, and the tests would run them.
func cacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("the tests keep programs and files in the user's cache: %w", err)
	}
	dir := filepath.Join(cache, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// copyTree copies a directory with its owners and modes.
func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying a server's files: %w\n%s", err, out)
	}
	return nil
}
