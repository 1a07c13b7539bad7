//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// crowd is how many processes crowd around one name.
const crowd = 64

// gather starts as many processes in a mode as are asked for and waits until all are ready.
func gather(t *testing.T, n int, mode, dir string) []*child {
	t.Helper()
	children := make([]*child, n)
	for i := range children {
		children[i] = spawn(t, mode, dir, nil)
	}
	for _, c := range children {
		c.expect("ready")
	}
	return children
}

// TestCrowd lets 64 processes, which wait for one name, take and release it 10 times each. None
// loses an update or a lease, and they take turns: when the first is through, the others nearly
// are.
func TestCrowd(t *testing.T) {
	const rounds = 10
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "number"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	children := gather(t, crowd, "crowd", dir)
	d := attachTest(t, filepath.Join(dir, "locks"))
	g, err := d.Try(t.Context(), request("crowd"))
	must(t, err)
	for _, c := range children {
		c.tell("%d", rounds)
	}
	for waiting := 0; waiting < crowd; time.Sleep(time.Millisecond) {
		info, err := d.Inspect(t.Context(), "crowd")
		must(t, err)
		waiting = len(info.Waiters)
	}
	start := time.Now()
	must(t, d.Release(t.Context(), []driver.Grant{g})[0])
	var holds [][]taken
	first := driver.Instant(1 << 62)
	for _, c := range children {
		var mine []taken
		if err := json.Unmarshal([]byte(c.expect("holds")), &mine); err != nil {
			t.Fatal(err)
		}
		if len(mine) != rounds {
			t.Errorf("a process held the name %d times, not %d", len(mine), rounds)
		}
		first = min(first, mine[len(mine)-1].To)
		holds = append(holds, mine)
	}
	t.Logf("%d holds in %v", crowd*rounds, time.Since(start))
	if n := readNumber(t, dir); n != crowd*rounds {
		t.Errorf("P1: there were %d holds, and the number is %d", crowd*rounds, n)
	}
	checkHolds(t, slices.Concat(holds...))
	for _, mine := range holds {
		late := 0
		for _, h := range mine {
			if h.To > first {
				late++
			}
		}
		if late > rounds/2 {
			t.Errorf("P8: when the first process had held the name %d times, another had %d times", rounds, rounds-late)
		}
	}
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
	n := testserver.Long(16, crowd)
	length := testserver.Long(2*time.Second, 10*time.Second)
	children := gather(t, n, "history", dir)
	for _, c := range children {
		c.tell("%v", length)
	}
	const killed = 3
	for i, end := 0, time.Now().Add(length); time.Now().Before(end); i++ {
		c := children[i%n]
		switch {
		case i < killed:
			c.kill()
		case i%n >= killed:
			c.signal(syscall.SIGSTOP)
			time.Sleep(stuckAfter / 2)
			c.signal(syscall.SIGCONT)
		}
		time.Sleep(20 * time.Millisecond)
	}
	var holds []taken
	for _, c := range children[killed:] {
		var mine []taken
		if err := json.Unmarshal([]byte(c.expect("holds")), &mine); err != nil {
			t.Fatal(err)
		}
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
			c.ask("ok", "try x 1m 0s")
		} else {
			c.ask("held", "queue x")
		}
	}
	c := attachTest(t, dir)
	arrived := arrival(t, c, request("x"))
	for _, c := range children {
		c.signal(syscall.SIGKILL)
	}
	start := time.Now()
	late := (<-arrived).Sub(start)
	t.Logf("the live one had the name after %v", late)
	if late > 3*poll {
		t.Errorf("P7: 100 processes that were killed together delayed a live one by %v", late)
	}
}

// TestWhoIsWatched: whoever dies, and whoever has given up before, the next in the queue learns
// of it at once, though each waiter watches only one other.
func TestWhoIsWatched(t *testing.T) {
	dir := t.TempDir()
	c := attachTest(t, dir)
	fresh := func(name string) (holder, waiter *child) {
		holder, waiter = obeying(t, dir), obeying(t, dir)
		holder.ask("ok", "try %s 1m 0s", name)
		waiter.ask("held", "queue %s", name)
		return holder, waiter
	}
	holder, waiter := fresh("both")
	waiting := granted(t, c, request("both"))
	waiter.kill()
	holder.kill()
	soon(t, "a waiter and the holder were killed", waiting)

	holder, waiter = fresh("gaveup")
	waiting = granted(t, c, request("gaveup"))
	waiter.ask("ok", "withdraw")
	holder.kill()
	soon(t, "a waiter gave up and the holder was killed", waiting)

	// Two hold slots and two wait for one. One of the holders gives its slot to the first waiter,
	// and the other is killed.
	a, b := attachTest(t, dir), obeying(t, dir)
	slot := func(permits int) driver.Request {
		r := request("slots")
		r.Mode, r.Slots, r.Permits = driver.Slot, 2, permits
		return r
	}
	g, err := a.Try(t.Context(), slot(1))
	must(t, err)
	b.ask("ok", "slot slots 2")
	first := granted(t, a, slot(1))
	waiting = granted(t, c, slot(1))
	must(t, a.Release(t.Context(), []driver.Grant{g})[0])
	soon(t, "a slot was released", first)
	b.kill()
	soon(t, "the holder of another slot was killed", waiting)
}
