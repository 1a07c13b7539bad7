package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfastlock/holdfast/driver"
)

func init() {
	childModes["diskfull"] = diskFull
	childModes["readonly"] = readOnly
	childModes["stranger"] = stranger
}

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
