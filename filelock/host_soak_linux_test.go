//go:build soak

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
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func init() { parts["diskfull"] = part(diskFull) }

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

// startApart starts a child that may mount: as root, or else as the root of a user namespace. It has a directory of
// its own.
func startApart(t *testing.T, part string) *testserver.Child {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return testserver.StartChildBy(t, cmd, part, t.TempDir())
}

func TestDiskFull(t *testing.T) { startApart(t, "diskfull").Expect("fine") }

// TestTimeNamespace: a process whose clock is days ahead sees the same holds.
func TestTimeNamespace(t *testing.T) {
	const text = "monotonic           5         0\nboottime           -3 500000000\n"
	if got, err := parseOffset(text); err != nil || got != -3*time.Second+500*time.Millisecond {
		t.Errorf("parseOffset(%q) = %v, %v", text, got, err)
	}
	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command("unshare", "--map-root-user", "--time", "--boottime", "100000", "--fork", "--kill-child", self)
	if os.Getuid() == 0 {
		cmd.Args = append(cmd.Args[:1], cmd.Args[2:]...)
	}
	p := testserver.StartChildBy(t, cmd, "obey", dir)
	p.Expect("ready")
	p.Ask("held", "try x 1m 0s")
	p.Ask("ok", "try y 1m 0s")
	p.Ask("ok", "renew")
	if _, err := c.Try(t.Context(), request("y")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a name held in another time namespace: %v", err)
	}
	p.Ask("held", "queue x")
	p.Tell("wait")
	must(t, c.Release(t.Context(), []driver.Grant{g})[0])
	p.Expect("ok")
	p.Ask("ok", "renew")
}
