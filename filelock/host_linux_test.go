package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func init() {
	childModes["diskfull"] = diskFull
	childModes["readonly"] = readOnly
	childModes["stranger"] = stranger
}

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

// mounted mounts a small file system on dir, where this process alone sees it,
// and opens a client there that holds x.
func mounted(dir string) (*client, driver.Grant, error) {
	var g driver.Grant
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, g, fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		return nil, g, fmt.Errorf("mounting: %w", err)
	}
	d, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return nil, g, err
	}
	g, err = d.Try(context.Background(), request("x"))
	return d.(*client), g, err
}

// diskFull is a child that fills the disk and looks what becomes of a hold.
func diskFull(dir string) error {
	ctx := context.Background()
	c, g, err := mounted(dir)
	if err != nil {
		return err
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling the disk: %w", err)
	}
	// A name without a record needs a new file.
	if _, err := c.Try(ctx, request("y")); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, driver.ErrUncertain) || !strings.Contains(err.Error(), "nothing was changed") {
		return fmt.Errorf("Try of a new name: %w", err)
	}
	// A record that grows does so until its last page is full.
	queued := 0
	for ; ; queued++ {
		r := request("x")
		r.Note = strings.Repeat("n", 500)
		if _, err = c.Enqueue(ctx, r); !errors.Is(err, driver.ErrHeld) {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, driver.ErrUncertain) {
		return fmt.Errorf("queueing on the full disk: %w", err)
	}
	info, err := c.Inspect(ctx, "x")
	if err != nil || len(info.Holders) != 1 || len(info.Waiters) != queued {
		return fmt.Errorf("after %d had queued the record is %+v, %w", queued, info, err)
	}
	if err := renew(c, g); err != nil && (driver.Gone(err) || !errors.Is(err, syscall.ENOSPC)) {
		return fmt.Errorf("renewing on the full disk: %w", err)
	}
	if err := os.Remove(filler); err != nil {
		return err
	}
	if err := renew(c, g); err != nil {
		return fmt.Errorf("renewing when there is space again: %w", err)
	}
	if _, err := c.Try(ctx, request("y")); err != nil {
		return fmt.Errorf("a new name when there is space again: %w", err)
	}
	fmt.Println("fine")
	return c.Close()
}

// readOnly is a child whose directory becomes read-only, and writable again.
func readOnly(dir string) error {
	ctx := context.Background()
	c, g, err := mounted(dir)
	if err != nil {
		return err
	}
	// Files that are open for writing would forbid it. The client's pipe is none
	// of the disk's.
	for i := range c.store.stripes {
		c.store.stripes[i].drop()
	}
	closeFD(c.store.paths.fd)
	c.store.paths.fd = -1
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounting read-only: %w", err)
	}
	bad := func(err error) bool {
		return !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "can be written") || driver.Gone(err)
	}
	if err := renew(c, g); bad(err) {
		return fmt.Errorf("renewing in a read-only directory: %w", err)
	}
	if _, err := c.Try(ctx, request("y")); bad(err) {
		return fmt.Errorf("Try in a read-only directory: %w", err)
	}
	other := filepath.Join(dir, "other")
	if _, err := Open(ctx, Options{Dir: other}); bad(err) {
		return fmt.Errorf("opening a read-only directory: %w", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""); err != nil {
		return fmt.Errorf("mounting writable: %w", err)
	}
	if err := renew(c, g); err != nil {
		return fmt.Errorf("renewing when the directory can be written again: %w", err)
	}
	fmt.Println("fine")
	return nil
}

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

func stranger(dir string) error {
	d, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	defer d.Close()
	var st syscall.Stat_t
	path := filepath.Join(dir, "names", "x.lock")
	if err := syscall.Stat(path, &st); err != nil {
		return err
	}
	_, err = d.Try(context.Background(), request("x"))
	want := fmt.Sprintf("%s belongs to uid %d, gid %d", path, st.Uid, st.Gid)
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("Try of a record that cannot be opened returned %w, which does not say %q", err, want)
	}
	if _, err := d.Try(context.Background(), request("y")); err != nil {
		return fmt.Errorf("Try of another name: %w", err)
	}
	fmt.Println("fine")
	return nil
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
