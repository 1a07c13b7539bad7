//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// openTest opens a client of dir that is closed with the test.
func openTest(t testing.TB, dir string) *client {
	t.Helper()
	d, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.(*client)
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), TTL: time.Minute, Note: "a test, its host, 42"}
}
