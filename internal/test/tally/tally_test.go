package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module is one whose packages end in every way that there is.
var module = map[string]string{
	"go.mod":              "module m\n\ngo 1.26\n",
	"none/none.go":        "package none\n",
	"good/good_test.go":   `func TestOne(t *testing.T) { t.Log("nobody asks") }; func TestSome(t *testing.T) { t.Run("a", TestOne); t.Run("b", func(t *testing.T) { t.Skip("for a reason") }) }`,
	"bad/bad_test.go":     `func TestBad(t *testing.T) { t.Log("before"); t.Run("good", func(*testing.T) {}); t.Run("a", func(t *testing.T) { t.Run("deep", func(t *testing.T) { t.Errorf("at the %s", "bottom") }) }) }; func TestSelf(t *testing.T) { t.Run("good", func(*testing.T) {}); t.Error("by itself") }`,
	"panics/p_test.go":    `func TestFine(*testing.T) {}; func TestPanics(t *testing.T) { done := make(chan int); go func() { panic("a surprise") }(); <-done }`,
	"hangs/h_test.go":     `func TestHangs(t *testing.T) { t.Run("below", func(*testing.T) { select {} }) }; func TestNever(*testing.T) {}`,
	"stuck/s_test.go":     `func TestFirst(*testing.T) {}; func TestStuck(t *testing.T) { t.Run("below", func(t *testing.T) { t.Parallel(); select {} }); t.Run("good", func(t *testing.T) { t.Parallel() }) }`,
	"exits/e_test.go":     `func TestFine(*testing.T) {}; func TestMain(m *testing.M) { m.Run(); println("on the way out"); os.Exit(3) }`,
	"leaves/l_test.go":    `func TestLeaves(*testing.T) { os.Exit(4) }`,
	"unbuilt/u_test.go":   `func TestUnbuilt(*testing.T) { undefined() }`,
	"unvetted/v_test.go":  `func TestUnvetted(t *testing.T) { t.Logf("%d", "text") }`,
	"needs/needs_test.go": `func TestNeeds(*testing.T) { nothing.Do() }`,
}

// written makes the module, and returns its directory.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range module {
		if strings.HasSuffix(name, "_test.go") {
			imports := "import \"testing\"\n"
			if strings.Contains(text, "os.") {
				imports += "import \"os\"\n"
			}
			if strings.Contains(text, "nothing.") {
				imports += "import \"m/nothing\"\n"
			}
			text = "package " + filepath.Dir(name) + "\n" + imports + strings.ReplaceAll(text, "; func Test", "\nfunc Test")
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sum runs go test on packages of the module, and returns what is shown.
func sum(t *testing.T, dir string, args ...string) (shown string, ok bool) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	var out, stderr bytes.Buffer
	w := bufio.NewWriter(&out)
	ok = run(append([]string{"go", "test", "-C", dir, "-json"}, args...), &stderr, w, time.Hour)
	w.Flush()
	return stderr.String() + out.String(), ok
}

// TestEndings: each failure is printed whole and counted, whatever its kind, and the last line is
// the sum.
func TestEndings(t *testing.T) {
	dir := written(t)
	for _, c := range []struct {
		name, sum string
		shows     []string
		hides     []string
	}{
		{"good", "2 passed, 0 failed, 1 skipped", []string{"for a reason", "m/good"}, []string{"nobody asks", "PASS"}},
		{"none", "0 passed, 0 failed, 0 skipped", nil, []string{"m/none"}},
		{"bad", "2 passed, 2 failed, 0 skipped", []string{"before", "at the bottom", "by itself", "--- FAIL: TestBad/a/deep"}, []string{"=== RUN", "TestBad/good"}},
		{"panics", "1 passed, 1 failed, 0 skipped", []string{"a surprise", "goroutine "}, nil},
		{"hangs", "0 passed, 1 failed, 0 skipped", []string{"timed out", "TestHangs/below"}, nil},
		{"stuck", "2 passed, 1 failed, 0 skipped", []string{"timed out", "goroutine ", "TestStuck/below (did not end)"}, nil},
		{"exits", "1 passed, 1 failed, 0 skipped", []string{"on the way out"}, nil},
		{"leaves", "0 passed, 1 failed, 0 skipped", []string{"TestLeaves (did not end)"}, nil},
		{"unbuilt", "0 passed, 1 failed, 0 skipped", []string{"undefined: undefined"}, nil},
		{"unvetted", "0 passed, 1 failed, 0 skipped", []string{"wrong type"}, nil},
		{"needs", "0 passed, 1 failed, 0 skipped", []string{"m/nothing"}, nil},
		{"absent", "0 passed, 1 failed, 0 skipped", []string{"absent"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"./" + c.name}
			if c.name == "hangs" || c.name == "stuck" {
				args = append(args, "-timeout=1s")
			}
			shown, ok := sum(t, dir, args...)
			if !strings.HasSuffix(shown, "\n"+c.sum+"\n") {
				t.Errorf("the last line is not %q", c.sum)
			}
			if want := strings.Contains(c.sum, " 0 failed"); ok != want {
				t.Errorf("all is well: %v, want %v", ok, want)
			}
			for _, text := range c.shows {
				if strings.Count(shown, text) == 0 {
					t.Errorf("%q is not shown", text)
				}
			}
			for _, text := range c.hides {
				if strings.Contains(shown, text) {
					t.Errorf("%q is shown", text)
				}
			}
			if t.Failed() {
				t.Logf("shown is\n%s", shown)
			}
		})
	}
	shown, ok := sum(t, dir, "-no-such-flag")
	if ok || !strings.HasSuffix(shown, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("go test was called wrongly, and shown is\n%s", shown)
	}
}

// TestSlowest: the five that took longest, the longest first.
func TestSlowest(t *testing.T) {
	var lines []string
	for _, p := range []string{"a 1", "b 7", "c 3", "d 3", "e 2", "f 9"} {
		name, took, _ := strings.Cut(p, " ")
		lines = append(lines, `{"Action":"pass","Package":"`+name+`","Elapsed":`+took+`}`)
	}
	shown := fed(t, lines...)
	want := "The slowest packages:\n        9.0s  f\n        7.0s  b\n        3.0s  c\n        3.0s  d\n        2.0s  e\n0 passed, 0 failed, 0 skipped\n"
	if !strings.HasSuffix(shown, want) {
		t.Errorf("shown is\n%s, and its end not\n%s", shown, want)
	}
}

// fed returns what is shown of a go test that ends well.
func fed(t *testing.T, lines ...string) string {
	t.Helper()
	var out bytes.Buffer
	tally := newTally(&out)
	for _, line := range lines {
		tally.line([]byte(line + "\n"))
	}
	tally.end(nil)
	return out.String()
}

// TestRepeated: with -count each run of a test counts.
func TestRepeated(t *testing.T) {
	run, pass := `{"Action":"run","Package":"p","Test":"T"}`, `{"Action":"pass","Package":"p","Test":"T"}`
	if shown := fed(t, run, pass, run, pass, `{"Action":"pass","Package":"p"}`, "no event"); !strings.HasSuffix(shown, "\n2 passed, 0 failed, 0 skipped\n") || !strings.Contains(shown, "no event\n") {
		t.Errorf("shown is\n%s", shown)
	}
}

// TestStillRunning: what runs for long is shown, with the tests that it is at.
func TestStillRunning(t *testing.T) {
	var out bytes.Buffer
	tally := newTally(&out)
	for _, line := range []string{
		`{"Time":"2026-01-01T00:00:00Z","Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestOver"}`,
		`{"Action":"pass","Package":"p","Test":"TestOver"}`,
		`{"Action":"run","Package":"p","Test":"TestLong"}`,
		`{"Action":"run","Package":"p","Test":"TestLong/case"}`,
	} {
		tally.line([]byte(line + "\n"))
	}
	tally.stillRunning(time.Date(2026, 1, 1, 0, 0, 90, 0, time.UTC))
	if got, want := out.String(), "       90.0s     1 tests so far  p: TestLong\n"; got != want {
		t.Errorf("shown is %q, not %q", got, want)
	}
}

// TestCutShort: where go test is killed itself, what was running counts as failed.
func TestCutShort(t *testing.T) {
	var out bytes.Buffer
	tally := newTally(&out)
	tally.line([]byte(`{"Action":"run","Package":"p","Test":"TestLong"}`))
	tally.end(os.ErrClosed)
	if !strings.HasSuffix(out.String(), "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("shown is\n%s", out.String())
	}
}
