//go:build soak

package faulttest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastlock/holdfast/driver"
)

// fileAction is what is done to a file.
type fileAction string

const (
	readFile   fileAction = "read"
	writeFile  fileAction = "write" // with the generation that is wanted; 0 makes the file
	removeFile fileAction = "remove"
)

// outcome is what a client knows of an operation.
type outcome string

const (
	done    outcome = "done"
	changed outcome = "changed" // refused: the file is of another generation
	noFile  outcome = "no file" // refused: there is none
	unknown outcome = "unknown" // it may have been done, or be done at any time after the call, or never
)

// fileOp is one operation on a file, and what came of it.
type fileOp struct {
	Client   string
	Path     string
	Action   fileAction
	Want     int64  // the generation that the file must have
	Contents string // no two writes have the same
	// Again says that the client may have made the call more than once: the second is refused although the operation
	// was done, if the first was done and its answer lost.
	Again bool

	Outcome              outcome
	Generation, Instance int64 // of what was read or written
	Call, Return         driver.Instant
}

// fileState is a file as the model has it.
type fileState struct {
	there                bool
	generation, instance int64 // 0: not known, because nobody was told what became of the write
	contents             string
	high                 int64 // no generation after this one may be as low
}

// fileModel is a file with compare-and-swap.
var fileModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, op := range history {
			path := op.Input.(fileOp).Path
			if _, ok := at[path]; !ok {
				at[path] = len(parts)
				parts = append(parts, nil)
			}
			parts[at[path]] = append(parts[at[path]], op)
		}
		return parts
	},
	Init: func() any { return fileState{} },
	Step: func(state, input, _ any) (bool, any) { return state.(fileState).step(input.(fileOp)) },
}

// step reports whether the outcome of an operation is right in a state, and returns the next state.
func (s fileState) step(op fileOp) (bool, fileState) {
	meant := s.there && s.generation == op.Want
	switch op.Action {
	case readFile:
		if op.Outcome == noFile {
			return !s.there, s
		}
		return s.isRead(op)
	case writeFile:
		if op.Want == 0 {
			meant = !s.there
		}
		switch {
		case op.Outcome == done:
			return meant && s.newGeneration(op), s.written(op)
		case meant:
			return op.Again || op.Outcome == unknown, s.written(op)
		}
		return true, s
	}
	switch {
	case meant:
		return op.Again || op.Outcome != changed && op.Outcome != noFile, fileState{high: s.high}
	case op.Outcome == changed:
		return s.there, s
	case op.Outcome == noFile:
		return !s.there, s
	}
	return op.Outcome == unknown, s
}

// isRead reports whether this was read. It tells the numbers of a write of which nobody was told.
func (s fileState) isRead(op fileOp) (bool, fileState) {
	if !s.there || s.contents != op.Contents {
		return false, s
	}
	if s.generation != 0 {
		return op.Generation == s.generation && op.Instance == s.instance, s
	}
	right := s.newGeneration(op)
	s.generation, s.instance, s.high = op.Generation, op.Instance, max(s.high, op.Generation)
	return right, s
}

// newGeneration reports whether the numbers of a write can follow those before it.
func (s fileState) newGeneration(op fileOp) bool {
	instance := s.instance
	if instance == 0 {
		instance = op.Generation // the write has made the file
	}
	return op.Generation > s.high && op.Instance == instance
}

// written returns the state after a write. Its numbers are known if it was answered.
func (s fileState) written(op fileOp) fileState {
	next := fileState{there: true, contents: op.Contents, instance: s.instance, high: s.high}
	if op.Outcome == done {
		next.generation, next.instance, next.high = op.Generation, op.Instance, max(s.high, op.Generation)
	}
	return next
}

// checkFiles returns what is wrong with a history, or "".
func checkFiles(ops []fileOp, within time.Duration) string {
	var history []porcupine.Operation
	for _, op := range ops {
		if op.Outcome == unknown {
			if op.Action == readFile {
				continue
			}
			op.Return = math.MaxInt64
		}
		history = append(history, porcupine.Operation{Input: op, Call: int64(op.Call), Return: int64(op.Return)})
	}
	for _, part := range fileModel.Partition(history) {
		switch porcupine.CheckOperationsTimeout(fileModel, part, within) {
		case porcupine.Illegal:
			return fmt.Sprintf("no order of the %d operations on %s explains what came of them", len(part), part[0].Input.(fileOp).Path)
		case porcupine.Unknown:
			return fmt.Sprintf("the checker did not finish with %d operations on %s", len(part), part[0].Input.(fileOp).Path)
		}
	}
	return ""
}

// line is an operation on the file f, from an instant until another.
func (op fileOp) line(call, ret driver.Instant) fileOp {
	op.Path, op.Call, op.Return = "f", call, ret
	return op
}

// TestCheckFiles: the checker finds what is wrong with histories, and nothing where nothing is.
func TestCheckFiles(t *testing.T) {
	write := func(want int64, contents string, generation, instance int64) fileOp {
		return fileOp{Action: writeFile, Want: want, Contents: contents, Outcome: done, Generation: generation, Instance: instance}
	}
	read := func(contents string, generation, instance int64) fileOp {
		return fileOp{Action: readFile, Contents: contents, Outcome: done, Generation: generation, Instance: instance}
	}
	with := func(op fileOp, o outcome) fileOp {
		op.Outcome, op.Generation, op.Instance = o, 0, 0
		return op
	}
	remove := func(want int64, o outcome) fileOp { return fileOp{Action: removeFile, Want: want, Outcome: o} }
	again := func(op fileOp) fileOp { op.Again = true; return op }
	none := fileOp{Action: readFile, Outcome: noFile}
	made := write(0, "a", 5, 5)
	for name, c := range map[string]struct {
		good bool
		ops  []fileOp // one after the other
	}{
		"made, read, written, removed":       {true, []fileOp{none, made, read("a", 5, 5), write(5, "b", 7, 5), read("b", 7, 5), remove(7, done), none}},
		"refused as it must be":              {true, []fileOp{made, with(write(0, "b", 0, 0), changed), with(write(4, "b", 0, 0), changed), remove(4, changed), read("a", 5, 5)}},
		"an acknowledged write is lost":      {false, []fileOp{made, write(5, "b", 7, 5), read("a", 5, 5)}},
		"an acknowledged file is lost":       {false, []fileOp{made, none}},
		"a removed file comes back":          {false, []fileOp{made, remove(5, done), read("a", 5, 5)}},
		"two write over the same":            {false, []fileOp{made, write(5, "b", 7, 5), write(5, "c", 8, 5)}},
		"a write returns another's number":   {false, []fileOp{made, write(5, "b", 7, 5), write(7, "c", 7, 5)}},
		"two make it":                        {false, []fileOp{made, write(0, "b", 6, 6)}},
		"refused without a reason":           {false, []fileOp{made, with(write(5, "b", 0, 0), changed)}},
		"contents of one, number of another": {false, []fileOp{made, write(5, "b", 7, 5), read("a", 7, 5)}},
		"unknown, and done":                  {true, []fileOp{made, with(write(5, "b", 0, 0), unknown), read("b", 7, 5), write(7, "c", 8, 5)}},
		"unknown, and never done":            {true, []fileOp{made, with(write(5, "b", 0, 0), unknown), write(5, "c", 7, 5), read("c", 7, 5)}},
		"unknown, and done too late":         {false, []fileOp{made, with(write(5, "b", 0, 0), unknown), write(5, "c", 7, 5), read("b", 8, 5)}},
		"unknown, and done twice":            {false, []fileOp{with(made, unknown), read("a", 5, 5), remove(5, done), read("a", 9, 9)}},
		"unknown, and undone":                {false, []fileOp{made, with(write(5, "b", 0, 0), unknown), read("b", 7, 5), read("a", 5, 5)}},
		"asked again, done and refused":      {true, []fileOp{made, again(with(write(5, "b", 0, 0), changed)), read("b", 7, 5)}},
		"asked again, removed and refused":   {true, []fileOp{made, again(remove(5, noFile)), none}},
		"asked again, and both done and not": {false, []fileOp{made, again(with(write(5, "b", 0, 0), changed)), read("a", 5, 5)}},
		"what was never written is read":     {false, []fileOp{made, read("x", 6, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			var ops []fileOp
			for i, op := range c.ops {
				ops = append(ops, op.line(driver.Instant(2*i+1), driver.Instant(2*i+2)))
			}
			if wrong := checkFiles(ops, time.Minute); (wrong == "") != c.good {
				t.Errorf("the checker says %q", wrong)
			}
		})
	}
	atOnce := []fileOp{made.line(1, 2), write(5, "b", 7, 5).line(3, 9), read("a", 5, 5).line(4, 5), read("b", 7, 5).line(6, 7)}
	if wrong := checkFiles(atOnce, time.Minute); wrong != "" {
		t.Errorf("while a write is under way the checker says %q", wrong)
	}
	slices.Reverse(atOnce[2:])
	atOnce[2], atOnce[3] = atOnce[2].line(4, 5), atOnce[3].line(6, 7)
	if wrong := checkFiles(atOnce, time.Minute); wrong == "" {
		t.Error("the checker lets a read see what was there before another read")
	}
}
