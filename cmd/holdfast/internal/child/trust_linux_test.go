package child

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// trusting returns a child whose guard is replaced by a pipe, which the test reads.
func trusting(t *testing.T) (*Child, *bufio.Reader) {
	t.Helper()
	orders, trust, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close(); trust.Close() })
	orders.SetReadDeadline(time.Now().Add(time.Minute)) // for a line that was lost
	return &Child{trust: trust}, bufio.NewReader(orders)
}

// TestTrustArrives: a deadline reaches a guard that can read it, even on a busy processor. If the first one
// were lost, the guard and the supervisor would wait for each other for ever.
func TestTrustArrives(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
		}
	}()
	c, orders := trusting(t)
	for i := range 20_000 {
		c.Trust(driver.Instant(i))
		if i%1000 != 999 { // a pipe has room for that many
			continue
		}
		for j := i - 999; j <= i; j++ {
			line, err := orders.ReadString('\n')
			if want := strconv.Itoa(j); err != nil || strings.TrimSpace(line) != want {
				t.Fatalf("the guard got %q (%v), not %s", line, err, want)
			}
		}
	}
}

// TestTrustDoesNotWait: Trust does not wait for a guard that does not read.
func TestTrustDoesNotWait(t *testing.T) {
	c, _ := trusting(t)
	for i := range 100_000 { // more than any pipe has room for
		c.Trust(driver.Instant(i))
	}
}
