//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// contendFor is how long the processes contend.
func contendFor() time.Duration { return testserver.Long(3*time.Second, 20*time.Second) }

// TestContention lets 4 processes of 16 goroutines contend for one name. Each
// holder adds 1 to a number in a file, in two steps. No addition may be lost,
// and nobody may starve.
func TestContention(t *testing.T) {
	_, holds := contention(t, "contend", contendFor(), func([]*child) {})
	total, squares, least := 0, 0, holds[0]
	for _, n := range holds {
		total, squares, least = total+n, squares+n*n, min(least, n)
	}
	jain := float64(total) * float64(total) / float64(len(holds)*squares)
	share := float64(least*len(holds)) / float64(total)
	t.Logf("%d holds in %v (%.0f/s); Jain index %.4f; the least served goroutine had %.0f%% of an equal share",
		total, contendFor()*8/10, float64(total)/(contendFor().Seconds()*8/10), jain, 100*share)
	if jain < 0.9 || share < 0.5 {
		t.Errorf("P8: the holds are unfair: %v", holds)
	}
}

// TestContentionWithStops also stops one process after the other, wherever it
// is, for longer than others wait for a record that is locked.
func TestContentionWithStops(t *testing.T) {
	stops := 0
	holds, _ := contention(t, "contendrenewed", contendFor(), func(children []*child) {
		for end := time.Now().Add(contendFor()); time.Now().Before(end); stops++ {
			c := children[stops%len(children)]
			c.signal(syscall.SIGSTOP)
			time.Sleep(stuckAfter + 50*time.Millisecond)
			c.signal(syscall.SIGCONT)
			time.Sleep(20 * time.Millisecond)
		}
	})
	total := 0
	for _, n := range holds {
		total += n
	}
	t.Logf("%d holds with %d stops in %v", total, stops, contendFor())
	if total < 2*stops {
		t.Errorf("P7: only %d holds with %d stops: %v", total, stops, holds)
	}
}

// contention lets children contend for d, does something with them meanwhile,
// and returns how often each goroutine held the name, in all and without the first
// and the last tenth of the time, when some goroutines are alone. It fails the test if an
// update was lost.
func contention(t *testing.T, mode string, d time.Duration, meanwhile func([]*child)) (all, inside []int) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "number"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var children []*child
	for range contenders {
		children = append(children, spawn(t, mode, dir, nil))
	}
	for _, c := range children {
		c.expect("ready")
	}
	for _, c := range children {
		c.tell("%v", d)
	}
	meanwhile(children)
	for _, c := range children {
		var mine [2][]int
		if err := json.Unmarshal([]byte(c.expect("holds")), &mine); err != nil {
			t.Fatal(err)
		}
		all, inside = append(all, mine[0]...), append(inside, mine[1]...)
	}
	total := 0
	for _, n := range all {
		total += n
	}
	if number := readNumber(t, dir); number != total {
		t.Errorf("P1: there were %d holds, and the number is %d: %d updates are lost", total, number, total-number)
	}
	return all, inside
}

func readNumber(t testing.TB, dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, "number"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}
