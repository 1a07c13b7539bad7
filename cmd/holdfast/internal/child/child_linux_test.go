package child

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// The guard of these tests is another one. A variable is initialized before the package's init function,
// which would make this process a guard that works.
var _ = func() bool {
	if os.Args[0] == guardName {
		dyingGuard()
	}
	return true
}()

// dyingGuard is a guard that is killed when it has started the command, before it can report that. The
// command has left the group and the session.
func dyingGuard() {
	orders, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	reports, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(1)
	}
	syscall.CloseOnExec(orders)
	syscall.CloseOnExec(reports)
	report{guardReady, 0}.write(reports)
	if _, err := syscall.Read(orders, make([]byte, 100)); err != nil {
		os.Exit(1)
	}
	_, _ = syscall.ForkExec(os.Args[4], os.Args[5:], &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestGuardDiesEarly: the guard is killed between its fork and its report. Start fails, and the lock is
// released at once. No process of the command may run then.
func TestGuardDiesEarly(t *testing.T) {
	if _, err := os.Stat("/bin/sleep"); err != nil {
		t.Fatal(err)
	}
	before := map[int]bool{}
	for _, pid := range children() {
		before[pid] = true
	}
	_, err := Start(Options{
		Path: "/bin/sleep", Args: []string{"sleep", "60"}, Until: driver.HostClock.Now().Add(driver.DefaultPoll),
	})
	if err == nil {
		t.Fatal("Start has not noticed that the guard died")
	}
	if n := killDescendants(before); n > 0 {
		t.Errorf("P1: Start returned %q, and %d processes of the command still ran", err, n)
	}
}

// TestTrust: a deadline reaches a guard that can read it, even on a busy processor. If the first one were lost, the
// guard and the supervisor would wait for each other for ever. Trust does not wait for a guard that does not read.
func TestTrust(t *testing.T) {
	orders, trust, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { orders.Close(); trust.Close() })
	orders.SetReadDeadline(time.Now().Add(time.Minute)) // for a deadline that was lost
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
		}
	}()
	c, order := &Child{trust: trust}, make([]byte, 8)
	for i := range 20_000 {
		c.Trust(driver.Instant(i))
		if i%1000 != 999 { // a pipe has room for that many
			continue
		}
		for j := i - 999; j <= i; j++ {
			_, err := io.ReadFull(orders, order)
			if got := binary.NativeEndian.Uint64(order); err != nil || got != uint64(j) {
				t.Fatalf("the guard got %d (%v), not %d", got, err, j)
			}
		}
	}
	for i := range 100_000 { // more than any pipe has room for
		c.Trust(driver.Instant(i))
	}
}
