//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// taken is one hold of a process, by the clock of the host.
type taken struct {
	Token    int64
	Shared   bool
	From, To driver.Instant // between these it was trusted
}

func init() { parts["history"] = part(history) }

// history is a child that takes a name for a while in any way, and prints its holds.
func history(dir string) error {
	c, err := holdfast.Open(context.Background(), "file://"+dir)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println("ready")
	var text string
	fmt.Scanln(&text)
	length, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	var holds []taken
	rw := c.RWMutex("crowd", nil)
	for end := time.Now().Add(length); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(2*time.Second))))
		lock, shared := rw.Write, rand.IntN(3) == 0
		if shared {
			lock = rw.Read
		}
		take := lock.Acquire
		if rand.IntN(5) == 0 {
			take = lock.TryAcquire
		}
		lease, err := take(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			continue
		}
		h := taken{Token: int64(lease.Token()), Shared: shared, From: driver.HostClock.Now()}
		h.To = h.From
		for range rand.IntN(3) {
			now := driver.HostClock.Now()
			if lease.Err() != nil {
				break
			}
			h.To = now // before this it was trusted still
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
		}
		holds = append(holds, h)
		lease.Release() // of a hold that is lost it says so
	}
	told, err := json.Marshal(holds)
	fmt.Println("holds", string(told))
	return err
}

// gather starts as many processes in a mode as are asked for and waits until all are ready.
func gather(t *testing.T, n int, mode, dir string) []*testserver.Child {
	t.Helper()
	children := make([]*testserver.Child, n)
	for i := range children {
		children[i] = testserver.StartChild(t, mode, dir)
	}
	for _, c := range children {
		c.Expect("ready")
	}
	return children
}

// checkHolds fails the test unless exclusive holds have had the name alone, and tokens have grown.
func checkHolds(t *testing.T, holds []taken) {
	t.Helper()
	slices.SortFunc(holds, func(a, b taken) int { return int(a.From - b.From) })
	var last taken           // the exclusive hold before
	var until driver.Instant // of all holds before
	var highest int64
	for _, h := range holds {
		if h.From < last.To || !h.Shared && h.From < until {
			t.Errorf("P1: %+v began before %v, when another hold had ended; the exclusive one before is %+v", h, until, last)
		}
		if h.Token <= last.Token || !h.Shared && h.Token <= highest {
			t.Errorf("P3: %+v has a token that is no higher than one before: %d; the exclusive one before is %+v", h, highest, last)
		}
		highest, until = max(highest, h.Token), max(until, h.To)
		if !h.Shared {
			last = h
		}
	}
}

// TestCrowdedHistories lets 64 processes take one name at random, exclusively and shared, trying
// and waiting, and give up at random, while some are stopped and killed, and checks what they say
// that they held.
func TestCrowdedHistories(t *testing.T) {
	dir := t.TempDir()
	n := testserver.Long(16, 64)
	length := testserver.Long(2*time.Second, 10*time.Second)
	children := gather(t, n, "history", dir)
	for _, c := range children {
		c.Tell("%v", length)
	}
	const killed = 3
	for i, end := 0, time.Now().Add(length); time.Now().Before(end); i++ {
		c := children[i%n]
		switch {
		case i < killed:
			c.Kill()
		case i%n >= killed:
			c.Signal(syscall.SIGSTOP)
			time.Sleep(stuckAfter + 50*time.Millisecond) // whatever it is doing
			c.Signal(syscall.SIGCONT)
		}
		time.Sleep(20 * time.Millisecond)
	}
	var holds []taken
	for _, c := range children[killed:] {
		var mine []taken
		must(t, json.Unmarshal([]byte(c.Expect("holds")), &mine))
		holds = append(holds, mine...)
	}
	t.Logf("%d holds of %d processes in %v", len(holds), n, length)
	if len(holds) < 2*n {
		t.Errorf("there were only %d holds", len(holds))
	}
	checkHolds(t, holds)
}

// TestKilledCrowd kills 100 processes together, the holder and 99 that wait, with a live one
// behind them.
func TestKilledCrowd(t *testing.T) {
	dir := t.TempDir()
	children := gather(t, 100, "obey", dir)
	for i, c := range children {
		if i == 0 {
			c.Ask("ok", "try x 1m 0s")
		} else {
			c.Ask("held", "queue x")
		}
	}
	c := attachTest(t, dir)
	arrived := arrival(t, c, request("x"))
	for _, c := range children {
		c.Signal(syscall.SIGKILL)
	}
	start := time.Now()
	late := (<-arrived).Sub(start)
	t.Logf("the live one had the name after %v", late)
	if late > 3*poll {
		t.Errorf("P7: 100 processes that were killed together delayed a live one by %v", late)
	}
}

// arrival queues and returns a channel that gets the time at which the hold
// arrived. It returns when the place is taken.
func arrival(t testing.TB, c *client, r driver.Request) <-chan time.Time {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: %v", err)
	}
	arrived := make(chan time.Time, 1)
	go func() {
		if _, err := waitFor(t.Context(), c, r); err == nil {
			arrived <- time.Now()
		}
	}()
	return arrived
}

// soon asserts that a waiter is granted its hold within three polls, which is the most that the dead may delay others.
func soon(t testing.TB, what string, waiting <-chan error) {
	t.Helper()
	select {
	case err := <-waiting:
		if err != nil {
			t.Errorf("P7: %s: the next in the queue did not get the name: %v", what, err)
		}
	case <-time.After(3 * poll):
		t.Fatalf("P7: %s: nobody has told the next in the queue within %v", what, 3*poll)
	}
}
