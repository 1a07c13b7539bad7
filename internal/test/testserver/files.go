package testserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shortDir makes a directory that is removed when the test ends. The path of a socket in it has 107 bytes at most.
func shortDir(t testing.TB, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp(in, "holdfast-")
	Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// ordinary is for programs that refuse to run as root. It returns the settings that make a
// program run as an ordinary user, or, if the test is not root, as the test's user. It also
// makes a directory for the program, which is removed when the test ends.
func ordinary(t testing.TB, name string) (dir string, attr *syscall.SysProcAttr) {
	t.Helper()
	dir = shortDir(t, "")
	if os.Getuid() != 0 {
		return dir, nil
	}
	u, err := user.Lookup(name)
	Must(t, err)
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	Must(t, os.Chown(dir, uid, gid))
	return dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// prepare runs a program that makes a server's files.
func prepare(t testing.TB, attr *syscall.SysProcAttr, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = attr
	cmd.Dir = os.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(args[0]), err, out)
	}
}

// FreeAddrs returns addresses on the loopback interface, all of them different, on which no program
// listened a moment ago.
func FreeAddrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		Must(t, err)
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// prepareData makes a server's files in the directory data. MySQL's program needs seconds for them, and a dozen
// packages start servers. So the program runs once, its files are kept in the user's cache, one set for each
// program and its arguments, and prepareData copies them.
func prepareData(t testing.TB, attr *syscall.SysProcAttr, data string, args ...string) {
	t.Helper()
	dir, err := cacheDir("holdfast-servers")
	Must(t, err)
	program, err := os.Stat(args[0])
	Must(t, err)
	h := sha256.New()
	fmt.Fprintln(h, program.Size(), program.ModTime().UnixNano())
	for _, arg := range args {
		fmt.Fprintf(h, "%q", strings.ReplaceAll(arg, data, "data"))
	}
	template := filepath.Join(dir, hex.EncodeToString(h.Sum(nil)))
	unlock, err := lockFile(template + ".lock")
	Must(t, err)
	defer unlock()
	if _, err := os.Stat(template); err == nil {
		prepare(t, nil, "cp", "-a", template, data) // with its owners and modes
		return
	}
	prepare(t, attr, args...)
	making := template + ".making"
	Must(t, os.RemoveAll(making))
	prepare(t, nil, "cp", "-a", data, making)
	Must(t, os.Rename(making, template))
}

// writeLines writes a file that any user may read, and returns its path.
func writeLines(t testing.TB, path string, lines ...string) string {
	t.Helper()
	Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	return path
}
