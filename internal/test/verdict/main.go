// Command verdict sums up what go test -json has written to files: of one suite, whose failed tests
// gotestsum may have run again.
//
//	verdict FILE...      the packages that took longest, flaky tests, and the closing line
//	verdict -row FILE    one line of the soak's table
//
// A test without subtests counts. One with subtests counts only if it failed by itself. A package that
// fails without a failed test, such as one that does not build, counts as a failed test. A test that
// failed and then passed is flaky. It counts as passed, unless its failure spoke of a broken promise
// that costs money: P1, P3 or a lost update, or its process was killed, so that the tests behind it did not run. Then it
// counts as failed, whatever a second run said.
//
// The exit code is 0 if no test failed and at least one passed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json: see go doc test2json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// grave matches the text of a failure that no second run can excuse.
var grave = regexp.MustCompile(`\bP[13]:|(?i)lost update|updates? under the lock`)

// test is one test, or a package by itself, over all its runs.
type test struct {
	parent, failedWithin bool // it has subtests; one of them failed
	output               string
	running              bool   // the last run has not ended
	last                 string // how the last run ended: pass, fail, skip; "": no run has ended
	failures, graves     int
}

// suite is what has been read so far. Its keys are a package, and a test of it or "".
type suite struct {
	tests map[[2]string]*test
	took  map[string]float64 // seconds, by package
}

func main() {
	args := os.Args[1:]
	row := len(args) > 0 && args[0] == "-row"
	if row {
		args = args[1:]
	}
	s := suite{map[[2]string]*test{}, map[string]float64{}}
	for _, name := range args {
		if err := s.readFile(name); err != nil {
			fmt.Fprintln(os.Stderr, "verdict:", err)
			os.Exit(1)
		}
	}
	show := s.summary
	if row {
		show = s.row
	}
	if !show(os.Stdout) {
		os.Exit(1)
	}
}

func (s suite) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.read(f)
}

// read takes in events. A line that is none is left out: gotestsum has shown it.
func (s suite) read(r io.Reader) error {
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			s.add(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (s suite) add(e event) {
	key := [2]string{e.Package, e.Test}
	t := s.tests[key]
	if t == nil {
		t = &test{}
		s.tests[key] = t
	}
	switch e.Action {
	case "run", "start":
		t.running, t.output = true, ""
		for _, above := range s.above(key) {
			above.parent = true
		}
	case "output":
		t.output += e.Output
	case "pass", "fail", "skip":
		t.running, t.last = false, e.Action
		if e.Test == "" {
			s.took[e.Package] += e.Elapsed
			s.cut(e.Package)
		}
		if e.Action == "fail" {
			t.failures++
			if grave.MatchString(t.output) {
				t.graves++
			}
			for _, above := range s.above(key) {
				above.failedWithin = true
			}
		}
	}
}

// cut makes the failures of tests grave that have not ended when their package has.
func (s suite) cut(pkg string) {
	for key, t := range s.tests {
		if key[0] == pkg && key[1] != "" && t.running {
			t.failures++
			t.graves++
		}
	}
}

// above returns the tests that a test is a subtest of.
func (s suite) above(key [2]string) (all []*test) {
	for i := range key[1] {
		if t := s.tests[[2]string{key[0], key[1][:i]}]; t != nil && key[1][i] == '/' {
			all = append(all, t)
		}
	}
	return all
}

// verdict is what counts of one test.
type verdict struct{ passed, failed, skipped, flaky bool }

func (t *test) verdict() verdict {
	switch {
	case t.failedWithin:
		return verdict{} // its subtests count
	case t.last == "fail" || t.running || t.graves > 0:
		return verdict{failed: true}
	case t.parent:
		return verdict{flaky: t.failures > 0}
	case t.last == "skip":
		return verdict{skipped: true}
	}
	return verdict{passed: true, flaky: t.failures > 0}
}

// count returns how many tests passed, failed and were skipped, and which failed and which were flaky.
func (s suite) count() (passed, skipped int, failed, flaky []string) {
	bad := map[string]bool{} // packages with a test that failed, even if it passed later
	for key, t := range s.tests {
		if key[1] != "" {
			bad[key[0]] = bad[key[0]] || t.failures > 0 || t.running
		}
	}
	for key, t := range s.tests {
		if key[1] == "" && (bad[key[0]] || t.last != "fail" && !t.running) {
			continue // its tests count
		}
		v, name := t.verdict(), strings.TrimSuffix(key[0]+" "+key[1], " ")
		switch {
		case v.failed && t.last == "pass":
			failed = append(failed, name+" (passed when run again, but its failure is grave)")
		case v.failed:
			failed = append(failed, name)
		case v.skipped:
			skipped++
		case v.passed:
			passed++
		}
		if v.flaky {
			flaky = append(flaky, name)
		}
	}
	slices.Sort(failed)
	slices.Sort(flaky)
	return passed, skipped, failed, flaky
}

func (s suite) summary(w io.Writer) bool {
	passed, skipped, failed, flaky := s.count()
	longest := slices.SortedFunc(maps.Keys(s.took), func(a, b string) int {
		return cmp.Or(-cmp.Compare(s.took[a], s.took[b]), strings.Compare(a, b))
	})
	fmt.Fprintln(w, "the packages that took longest:")
	for _, pkg := range longest[:min(5, len(longest))] {
		fmt.Fprintf(w, "  %6.1f s  %s\n", s.took[pkg], pkg)
	}
	list(w, "flaky: failed, and passed when run again:", flaky)
	list(w, "failed:", failed)
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, len(failed), skipped)
	return len(failed) == 0 && passed > 0
}

func list(w io.Writer, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	for _, name := range names {
		fmt.Fprintln(w, "  "+name)
	}
}

// row prints seconds, passed, failed and rerun.
func (s suite) row(w io.Writer) bool {
	passed, _, failed, flaky := s.count()
	seconds := 0.0
	for _, took := range s.took {
		seconds += took
	}
	fmt.Fprintf(w, "%8.1f %7d %7d %6d\n", seconds, passed, len(failed), len(flaky))
	return len(failed) == 0 && passed > 0
}
