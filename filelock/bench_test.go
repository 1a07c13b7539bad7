//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// floor is the least that a lock in a file can cost: open, flock, write, close.
func floor(path string, text []byte) error {
	fd, err := openFD(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if err := flock(fd, syscall.LOCK_EX); err != nil {
		return err
	}
	return pwrite(fd, text, 0)
}

// BenchmarkAcquireRelease takes and releases a free name, once by the driver and once by a
// client over it, and in the same run does what locks can cost the least: an open, a flock
// and a close (xflock is their rate over ours, for the driver and for the client), and twice
// an open, a flock, a write and a close, as for two changes that others are to see (xwrites).
func BenchmarkAcquireRelease(b *testing.B) {
	d := openTest(b, b.TempDir())
	c, err := holdfast.New(openTest(b, b.TempDir()), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	lock := c.Mutex("bench", nil)
	path := filepath.Join(b.TempDir(), "floor")
	text := make([]byte, 300)
	var took [4]time.Duration
	ctx := context.Background()
	for b.Loop() {
		for i, pair := range []func() error{
			func() error {
				g, err := d.Try(ctx, request("bench"))
				return errors.Join(err, d.Release(ctx, []driver.Grant{g})[0])
			},
			func() error {
				lease, err := lock.Acquire(ctx)
				if err == nil {
					err = lease.Release()
				}
				return err
			},
			func() error { return floor(path, nil) },
			func() error { return errors.Join(floor(path, text), floor(path, text)) },
		} {
			start := time.Now()
			if err := pair(); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(start)
		}
	}
	driver, client, flock, writes := float64(took[0]), float64(took[1]), float64(took[2]), float64(took[3])
	b.ReportMetric(driver/float64(b.N), "ns/driver")
	b.ReportMetric(client/float64(b.N), "ns/client")
	b.ReportMetric(flock/driver, "xflock-driver")
	b.ReportMetric(flock/client, "xflock-client")
	b.ReportMetric(writes/driver, "xwrites-driver")
	b.ReportMetric(writes/client, "xwrites-client")
}
