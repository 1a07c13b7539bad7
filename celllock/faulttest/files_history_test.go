//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// filer is a client that reads, compares and swaps, and removes files, and records it.
type filer struct {
	cell  *cell.Client
	who   string
	again bool             // the client asks another member if one does not answer
	knows map[string]int64 // the generations that it has seen last; 0: there was no file
	count int
}

// answeredWithin is for how long a filer waits for an answer. After that the outcome is unknown.
const answeredWithin = 3 * time.Second

// newFiler opens a client of a cell: of all its members, or of one.
func newFiler(who, addrs string, members int) (*filer, error) {
	c, err := openCell(addrs)
	if err != nil {
		return nil, err
	}
	return &filer{cell: c, who: who, again: members > 1, knows: map[string]int64{}}, nil
}

// act does one operation on a file. It reports false if nothing was asked, because no member could be reached.
func (f *filer) act(ctx context.Context, path string) (fileOp, bool) {
	f.count++
	knows, known := f.knows[path]
	op := fileOp{Client: f.who, Path: path, Action: readFile, Want: knows, Again: f.again}
	switch n := rand.IntN(10); {
	case known && knows != 0 && n == 0:
		op.Action = removeFile
	case known && n < 7:
		op.Action, op.Contents = writeFile, fmt.Sprint(f.who, "-", f.count)
	}
	delete(f.knows, path)
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	op.Call = driver.HostClock.Now()
	n, err := f.call(ctx, &op)
	op.Return = driver.HostClock.Now()
	switch {
	case err == nil:
		op.Outcome, op.Generation, op.Instance = done, n.ContentGeneration, n.Instance
		f.knows[path] = n.ContentGeneration
	case errors.Is(err, cell.ErrChanged):
		op.Outcome = changed
	case errors.Is(err, cell.ErrNoNode):
		op.Outcome = noFile
		f.knows[path] = 0
	case cell.Certain(err):
		return op, false
	default:
		op.Outcome = unknown
	}
	return op, true
}

// call makes the call of an operation. A file that was removed has no numbers.
func (f *filer) call(ctx context.Context, op *fileOp) (n *cell.Node, err error) {
	want := cell.If{Generation: &op.Want}
	switch op.Action {
	case writeFile:
		return f.cell.Put(ctx, op.Path, []byte(op.Contents), nil, want)
	case removeFile:
		return &cell.Node{}, f.cell.Delete(ctx, op.Path, want)
	}
	n, contents, err := f.cell.Get(ctx, op.Path)
	op.Contents = string(contents)
	return n, err
}

// TestFileHistories records what clients do with files, each with a connection of its own, while one member after the
// other is paused, or killed and restarted, and clients are cut off from it. One order of all operations must explain
// what they were told: no write that was acknowledged is lost, and none is done twice.
func TestFileHistories(t *testing.T) {
	t.Parallel()
	c := startThree(t, testserver.CellOptions{Election: quick})
	one := &oneOf{threeMembers: c}
	injector := faults.StartInjector(t, one, one, time.Second/2)
	const clients, files, perRound = 12, 6, 2000
	for round := range testserver.Long(3, 60) {
		var mu sync.Mutex
		var ops []fileOp
		var left atomic.Int64
		left.Store(perRound)
		var all sync.WaitGroup
		for i := range clients {
			addrs, members := c.addrs, len(c.links)
			if i%2 == 1 {
				addrs, members = c.links[i%len(c.links)].Addr, 1
			}
			f, err := newFiler(fmt.Sprint("client ", i), addrs, members)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer f.cell.Close()
				for left.Add(-1) >= 0 {
					op, asked := f.act(t.Context(), fmt.Sprint("history/", round, "-", rand.IntN(files)))
					if asked {
						mu.Lock()
						ops = append(ops, op)
						mu.Unlock()
					}
					time.Sleep(rand.N(10 * time.Millisecond))
				}
			})
		}
		all.Wait()
		if wrong := checkFiles(ops, time.Minute); wrong != "" {
			t.Errorf("P1: %s", wrong)
		}
		t.Logf("round %d: %v", round, tally(ops))
	}
	injector.End(t)
}

// tally counts operations by what was done and what came of it.
func tally(ops []fileOp) map[string]int {
	counts := map[string]int{}
	for _, op := range ops {
		counts[fmt.Sprint(op.Action, " ", op.Outcome)]++
	}
	return counts
}
