//go:build soak

package filelock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// apart are the attributes of a child that may mount: as root, or else as the
// root of a user namespace.
func apart() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

func TestDiskFull(t *testing.T) { spawn(t, "diskfull", t.TempDir(), apart()).expect("fine") }
func TestReadOnly(t *testing.T) { spawn(t, "readonly", t.TempDir(), apart()).expect("fine") }

// TestWrongOwner: a record that this user may not write is an error that says
// whose it is.
func TestWrongOwner(t *testing.T) {
	dir := t.TempDir()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := openTest(t, dir)
	if _, err := c.Try(t.Context(), request("x")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "names", "x.lock")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Fatalf("the record in a directory for all is %v, %v", info, err)
	}
	mode, attr := os.FileMode(0o600), &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if os.Getuid() != 0 {
		mode, attr = 0, nil
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	// The program may lie where a stranger cannot go.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "program")
	if err := os.WriteFile(copied, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied)
	cmd.Env = append(os.Environ(), childEnv+"=stranger:"+dir)
	cmd.SysProcAttr = attr
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "fine\n" {
		t.Errorf("the stranger said %q, %v", out, err)
	}
}

// TestTimeNamespace: a process whose clock is days ahead sees the same holds.
func TestTimeNamespace(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic           5         0\nboottime       100000         7\n": 100000*time.Second + 7,
		"monotonic           5         0\nboottime           -3 500000000\n": -3*time.Second + 500*time.Millisecond,
	} {
		if got, err := parseOffset(text); err != nil || got != want {
			t.Errorf("parseOffset(%q) = %v, %v", text, got, err)
		}
	}
	if _, err := parseOffset("monotonic 0 0\n"); err == nil {
		t.Error("parseOffset took offsets without boottime")
	}

	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, cmd: exec.Command("unshare", "--map-root-user", "--time", "--boottime", "100000", "--fork", "--kill-child", self)}
	if os.Getuid() == 0 {
		p.cmd.Args = append(p.cmd.Args[:1], p.cmd.Args[2:]...)
	}
	p.start(childEnv + "=obey:" + dir)
	p.expect("ready")
	p.ask("held", "try x 1m 0s")
	p.ask("ok", "try y 1m 0s")
	p.ask("ok", "renew")
	if _, err := c.Try(t.Context(), request("y")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a name held in another time namespace: %v", err)
	}
	p.ask("held", "queue x")
	p.tell("wait")
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	p.expect("ok")
	p.ask("ok", "renew")
}

func TestNetworkFileSystems(t *testing.T) {
	for number, name := range map[uint32]string{
		0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x65735546: "FUSE", 0x01021997: "9p",
		0x00c36400: "Ceph", 0x5346414f: "AFS", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x01161970: "GFS2", 0x7461636f: "OCFS2",
	} {
		if problem := networkType(number); !strings.Contains(problem, "is on "+name) {
			t.Errorf("file system %#x, which is %s: %q", number, name, problem)
		}
	}
	for name, number := range map[string]uint32{
		"ext4": 0xef53, "xfs": 0x58465342, "btrfs": 0x9123683e, "tmpfs": 0x01021994, "overlay": 0x794c7630, "zfs": 0x2fc12fc1, "f2fs": 0xf2f52010,
	} {
		if problem := networkType(number); problem != "" {
			t.Errorf("%s is refused: %q", name, problem)
		}
	}
}
