//go:build soak

package faulttest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
)

// fileJudge judges what clients did with files and were told of them.
type fileJudge struct {
	epoch  int      // writers are at these files by now
	ops    []fileOp // on files that are not judged yet
	views  []*view  // one for each process
	alive  []*cell.Node
	fenced []fencedWrite
}

// take takes in the report of a process.
func (j *fileJudge) take(process int, r fileReport) {
	for len(j.views) <= process {
		j.views = append(j.views, newView(fmt.Sprint("the watcher of process ", len(j.views))))
	}
	for _, w := range r.Told {
		j.views[process].take(w)
	}
	j.ops, j.fenced = append(j.ops, r.Ops...), append(j.fenced, r.Fenced...)
	if r.Alive != nil {
		j.alive = append(j.alive, r.Alive)
	}
}

// judge looks at the files that writers have left, if watchers have caught up since: one order of the operations
// explains what writers were told, and each watcher knows of each write that was acknowledged. Who holds a lock later
// writes later. It returns how much there was.
func (j *fileJudge) judge(t testing.TB) string {
	t.Helper()
	var left, ops []fileOp
	for _, op := range j.ops {
		var epoch int
		if _, err := fmt.Sscanf(op.Path, watchedDirectory+"/%d-", &epoch); err != nil {
			t.Fatal(err)
		}
		if epoch < j.epoch {
			ops = append(ops, op)
		} else {
			left = append(left, op)
		}
	}
	j.ops = left
	if wrong := checkFiles(ops, time.Minute); wrong != "" {
		t.Errorf("P1: %s", wrong)
	}
	reread := 0
	for _, v := range j.views {
		reread += len(v.read)
		for _, op := range ops {
			if op.Action == writeFile && op.Outcome == done && v.lacks(op) {
				v.wrong = append(v.wrong, fmt.Sprintf("%s is not told of %+v", v.who, op))
			}
		}
		for _, wrong := range v.wrong[:min(len(v.wrong), 5)] {
			t.Errorf("P7: %s", wrong)
		}
		v.wrong = nil
	}
	slices.SortFunc(j.fenced, func(a, b fencedWrite) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Generation, b.Generation))
	})
	for i, w := range j.fenced[min(1, len(j.fenced)):] {
		if before := j.fenced[i]; before.Path == w.Path && w.Token < before.Token {
			t.Errorf("P3: a write under a lock of token %d comes after one of token %d: %+v, %+v", w.Token, before.Token, before, w)
		}
	}
	return fmt.Sprintf("%v, %d writes under locks so far, watchers have read %d times", tally(ops), len(j.fenced), reread)
}

// lives asserts that the nodes of sessions that are kept alive are there, and none besides.
func (j *fileJudge) lives(t testing.TB, of *cell.Client) {
	t.Helper()
	var there []*cell.Node
	for n, err := range of.ReadDir(t.Context(), aliveDirectory) {
		if err != nil {
			t.Fatal(err)
		}
		there = append(there, n)
	}
	slices.SortFunc(j.alive, func(a, b *cell.Node) int { return cmp.Compare(a.Path, b.Path) })
	if !slices.EqualFunc(there, j.alive, func(a, b *cell.Node) bool { return a.String() == b.String() }) {
		t.Errorf("P2: of sessions that are kept alive the nodes are\n%+v\nand there are\n%+v", j.alive, there)
	}
}
