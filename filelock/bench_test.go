//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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

// BenchmarkAcquireRelease takes and releases a free name, and does the floor of
// both, two writes under a flock, in the same run: xfloor is the ratio.
func BenchmarkAcquireRelease(b *testing.B) {
	d := openTest(b, b.TempDir())
	path := filepath.Join(b.TempDir(), "floor")
	text := make([]byte, 300)
	var ours, raw time.Duration
	for b.Loop() {
		start := time.Now()
		g, err := d.Try(b.Context(), request("bench"))
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Release(b.Context(), []driver.Grant{g})[0]; err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		for range 2 {
			if err := floor(path, text); err != nil {
				b.Fatal(err)
			}
		}
		ours += middle.Sub(start)
		raw += time.Since(middle)
	}
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "ns/pair")
	b.ReportMetric(float64(ours)/float64(raw), "xfloor")
}

// BenchmarkFirstUse takes and releases names that have no record yet.
func BenchmarkFirstUse(b *testing.B) {
	d := openTest(b, b.TempDir())
	for i := 0; b.Loop(); i++ {
		g, err := d.Try(b.Context(), request(fmt.Sprintf("bench/%d", i)))
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Release(b.Context(), []driver.Grant{g})[0]; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenew10000 renews 10,000 leases in one batch.
func BenchmarkRenew10000(b *testing.B) {
	d := openTest(b, b.TempDir())
	var grants []driver.Grant
	for i := range 10000 {
		g, err := d.Try(b.Context(), request(fmt.Sprintf("bench/%d", i)))
		if err != nil {
			b.Fatal(err)
		}
		grants = append(grants, g)
	}
	for b.Loop() {
		for _, r := range d.Renew(b.Context(), grants) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}
