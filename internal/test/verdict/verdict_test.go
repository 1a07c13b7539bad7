package main

import (
	"strings"
	"testing"
)

// run is the events of one run of a test that ends so, after it has written a text.
func run(test, output, action string) string {
	line := func(action, output string) string {
		return `{"Action":"` + action + `","Package":"p","Test":"` + test + `","Output":"` + output + `"}` + "\n"
	}
	return line("run", "") + line("output", output) + line(action, "")
}

const (
	passes = `{"Action":"pass","Package":"p","Elapsed":1}` + "\n"
	fails  = `{"Action":"fail","Package":"p","Elapsed":1}` + "\n"
)

func TestSummary(t *testing.T) {
	for name, c := range map[string]struct {
		events, want string
		good         bool
	}{
		"all pass":       {run("TestA", "", "pass") + passes, "1 passed, 0 failed, 0 skipped", true},
		"one fails":      {run("TestA", "", "pass") + run("TestB", "no", "fail") + fails, "1 passed, 1 failed, 0 skipped", false},
		"one skips":      {run("TestA", "", "pass") + run("TestB", "", "skip") + passes, "1 passed, 0 failed, 1 skipped", true},
		"none":           {passes, "0 passed, 0 failed, 0 skipped", false},
		"does not end":   {`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + fails, "0 passed, 1 failed, 0 skipped", false},
		"killed":         {`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + fails + run("TestA", "", "pass") + passes, "0 passed, 1 failed, 0 skipped", false},
		"does not build": {fails, "0 passed, 1 failed, 0 skipped", false},
		"noise":          {"go: downloading\n" + run("TestA", "", "pass") + passes, "1 passed, 0 failed, 0 skipped", true},
		"flaky":          {run("TestA", "P7: late", "fail") + fails + run("TestA", "", "pass") + passes, "1 passed, 0 failed, 0 skipped", true},
		"flaky subtest": {
			`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + run("TestA/b", "late", "fail") + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + fails +
				`{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + run("TestA/b", "", "pass") + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + passes,
			"1 passed, 0 failed, 0 skipped", true,
		},
		"fails again":   {run("TestA", "late", "fail") + fails + run("TestA", "late", "fail") + fails, "0 passed, 1 failed, 0 skipped", false},
		"two holders":   {run("TestA", "P1: two", "fail") + fails + run("TestA", "", "pass") + passes, "0 passed, 1 failed, 0 skipped", false},
		"a lost update": {run("TestA", "of 9 updates under the lock 1 were lost", "fail") + fails + run("TestA", "", "pass") + passes, "0 passed, 1 failed, 0 skipped", false},
		"P10 is not P1": {run("TestA", "P10: bad input", "fail") + fails + run("TestA", "", "pass") + passes, "1 passed, 0 failed, 0 skipped", true},
	} {
		s := suite{map[[2]string]*test{}, map[string]float64{}}
		if err := s.read(strings.NewReader(c.events)); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		good := s.summary(&out)
		if !strings.HasSuffix(out.String(), "\n"+c.want+"\n") || good != c.good {
			t.Errorf("%s: %t and\n%s\nnot %t and %s", name, good, out.String(), c.good, c.want)
		}
		if flaky := strings.Contains(out.String(), "flaky"); flaky != strings.HasPrefix(name, "flaky") && !strings.Contains(name, "P10") {
			t.Errorf("%s: it lists flaky tests: %t\n%s", name, flaky, out.String())
		}
	}
}
