package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json: see go doc test2json, and go help buildjson.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Time                                                   time.Time
	Elapsed                                                float64 // seconds
}

// tally is what go test has reported so far.
type tally struct {
	out                     io.Writer
	passed, failed, skipped int
	packages                map[string]*packageRun // that have not ended
	builds                  map[string][]string    // the output of builds
	took                    map[string]float64     // seconds, of those that have ended
}

// packageRun is one package whose tests run.
type packageRun struct {
	started             time.Time
	tests               map[string]*testRun // that have not ended, and those below the ones that have not
	order               []string            // their names, as they began
	output              []string            // of no test
	dying               bool                // the program prints why it ends: a panic, or a time-out
	count, failed, told int                 // tests counted; of these failed; top-level tests shown
}

// testRun is one test, or a subtest.
type testRun struct {
	output               []string
	parent, ended        bool // it has subtests; it is over
	failed, failedWithin bool // it, or one of its subtests
	skipped              bool
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, packages: map[string]*packageRun{}, builds: map[string][]string{},
		took: map[string]float64{}}
}

// line handles one line of output. A line that is no event is printed as it is.
func (t *tally) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintf(t.out, "%s", line)
		return
	}
	switch {
	case e.Action == "build-output":
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)
	case e.Package == "" || e.Action == "build-fail":
	case e.Test == "":
		t.ofPackage(&e)
	default:
		t.ofTest(t.running(&e), &e)
	}
}

// running returns the package that an event belongs to.
func (t *tally) running(e *event) *packageRun {
	p := t.packages[e.Package]
	if p == nil {
		p = &packageRun{started: e.Time, tests: map[string]*testRun{}}
		t.packages[e.Package] = p
	}
	return p
}

// ofTest handles an event of a test.
func (t *tally) ofTest(p *packageRun, e *event) {
	// go test gives the dump of a program that dies to the test that has printed last, which may
	// have passed, while others hang.
	p.dying = p.dying || strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ")
	if p.dying && e.Action == "output" {
		p.output = append(p.output, e.Output)
		return
	}
	test := p.tests[e.Test]
	if test == nil {
		test = &testRun{}
		p.tests[e.Test] = test
		p.order = append(p.order, e.Test)
	}
	switch e.Action {
	case "run":
		for i := range e.Test {
			if above := p.tests[e.Test[:i]]; e.Test[i] == '/' && above != nil {
				above.parent = true
			}
		}
	case "output":
		if !framework(e.Output) {
			test.output = append(test.output, e.Output)
		}
	case "pass", "fail", "skip":
		test.ended, test.failed, test.skipped = true, e.Action == "fail", e.Action == "skip"
		t.count(p, e.Test, test)
		if !strings.Contains(e.Test, "/") {
			t.told(p, e.Package, e.Test)
		}
	}
}

// framework reports whether a line of output only names the test that runs.
func framework(line string) bool {
	for _, mark := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}

// count counts a test that has ended. A failure counts for the innermost test only.
func (t *tally) count(p *packageRun, name string, test *testRun) {
	switch {
	case test.failed:
		for i := range name {
			if above := p.tests[name[:i]]; name[i] == '/' && above != nil {
				above.failedWithin = true
			}
		}
		if test.failedWithin {
			return
		}
		t.failed++
		p.failed++
	case test.parent:
		return
	case test.skipped:
		t.skipped++
	default:
		t.passed++
	}
	p.count++
}

// told prints the failures of a top-level test that has ended, and why its subtests were
// skipped, and then forgets the test.
func (t *tally) told(p *packageRun, pkg, top string) {
	within := func(name string) bool { return name == top || strings.HasPrefix(name, top+"/") }
	for _, name := range p.order {
		test := p.tests[name]
		if !within(name) || test.ended && !test.failed && !test.skipped {
			continue
		}
		if name == top && test.failed {
			p.told++
			fmt.Fprintf(t.out, "--- in %s:\n", pkg)
		}
		for _, line := range test.output {
			fmt.Fprint(t.out, line)
		}
	}
	p.order = slices.DeleteFunc(p.order, within)
	maps.DeleteFunc(p.tests, func(name string, _ *testRun) bool { return within(name) })
}

// ofPackage handles an event of a package.
func (t *tally) ofPackage(e *event) {
	p := t.running(e)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		t.unfinished(p, e.Package)
		if e.Action == "fail" && p.failed == 0 {
			t.failed++
			p.failed++
		}
		if e.Action == "fail" || p.failed > 0 {
			t.outputOf(p, e)
		}
		if e.Action != "skip" { // "no test files"
			t.took[e.Package] = e.Elapsed
			word := map[bool]string{true: "FAIL", false: "ok  "}[e.Action == "fail" || p.failed > 0]
			fmt.Fprintf(t.out, "%s %6.1fs  %4d tests  %s\n", word, e.Elapsed, p.count, e.Package)
		}
		delete(t.packages, e.Package)
	}
}

// outputOf prints the output of a package that failed which belongs to no test, and that of
// its build.
func (t *tally) outputOf(p *packageRun, e *event) {
	for _, line := range slices.Concat(t.builds[e.FailedBuild], p.output) {
		fmt.Fprint(t.out, line)
	}
	delete(t.builds, e.FailedBuild)
}

// unfinished counts as failed the tests that had not ended when their program did, unless one of
// their subtests had not ended either.
func (t *tally) unfinished(p *packageRun, pkg string) {
	for _, name := range slices.Backward(p.order) { // subtests before the test
		if test := p.tests[name]; !test.ended {
			test.ended, test.failed = true, true
			test.output = append(test.output, fmt.Sprintf("--- FAIL: %s (did not end)\n", name))
			t.count(p, name, test)
		}
	}
	for _, name := range slices.Clone(p.order) {
		if !strings.Contains(name, "/") {
			t.told(p, pkg, name)
		}
	}
}

// stillRunning prints the packages that have not ended, and how long they have run.
func (t *tally) stillRunning(now time.Time) {
	for _, pkg := range slices.Sorted(maps.Keys(t.packages)) {
		p := t.packages[pkg]
		var at []string
		for _, name := range p.order {
			if !p.tests[name].ended && !strings.Contains(name, "/") {
				at = append(at, name)
			}
		}
		fmt.Fprintf(t.out, "     %6.1fs  %4d tests so far  %s: %s\n", now.Sub(p.started).Seconds(),
			p.count, pkg, strings.Join(at, " "))
	}
}

// end prints the summary, after go test has ended with an error or nil.
func (t *tally) end(err error) {
	for _, pkg := range slices.Sorted(maps.Keys(t.packages)) { // go test itself was killed
		t.ofPackage(&event{Action: "fail", Package: pkg})
	}
	if err != nil {
		for _, build := range slices.Sorted(maps.Keys(t.builds)) {
			fmt.Fprint(t.out, strings.Join(t.builds[build], ""))
		}
		if t.failed == 0 {
			t.failed++
			fmt.Fprintf(t.out, "go test: %v\n", err)
		}
	}
	slowest := slices.SortedFunc(maps.Keys(t.took), func(a, b string) int {
		return cmp.Or(-cmp.Compare(t.took[a], t.took[b]), strings.Compare(a, b))
	})
	fmt.Fprintln(t.out, "The slowest packages:")
	for _, pkg := range slowest[:min(5, len(slowest))] {
		fmt.Fprintf(t.out, "     %6.1fs  %s\n", t.took[pkg], pkg)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
}
