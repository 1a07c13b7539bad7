package conformance

import (
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/quorum"
)

// only returns a driver over durable nodes with these numbers only: the others cannot be reached.
func (s servers) only(t testing.TB, numbers ...int) driver.Driver {
	t.Helper()
	there := map[int]bool{}
	for _, n := range numbers {
		there[n] = true
	}
	addresses := s.addresses()
	for i := range addresses {
		if !there[i] {
			addresses[i] = "127.0.0.1:1"
		}
	}
	d := redlock(t, addresses, quorum.Options{Durable: true})
	t.Cleanup(func() { d.Close() })
	return d
}
