package demo

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func someResults() []Result {
	none := Result{Strategy: "none", What: "reads and writes", Stock: 3, ExpectedWrong: true}
	none.add(outcome{counts: counts{left: 2, sold: 100, twice: 7}, took: 500 * time.Millisecond})
	none.add(outcome{counts: counts{left: 2, sold: 99, twice: 8}, took: time.Second})
	none.add(outcome{counts: counts{left: 0, sold: 3}, took: time.Second})
	lucky := Result{Strategy: "process-mutex", What: "has a mutex of its own", Stock: 3, ExpectedWrong: true}
	lucky.add(outcome{counts: counts{sold: 3}, took: time.Second})
	lucky.add(outcome{counts: counts{sold: 3}, took: time.Second})
	twice := Result{Strategy: "lock", What: "has a lock", Stock: 3}
	twice.add(outcome{counts: counts{sold: 3}, took: time.Second})
	twice.add(outcome{counts: counts{sold: 3, twice: 1}, took: 2 * time.Second, note: "there was fog"})
	return []Result{
		none, lucky, twice,
		{Strategy: "paused-fenced", What: "is paused", Stock: 3, Note: "the store gives no fencing tokens"},
		{Strategy: "atomic-update", What: "has one statement < another", Stock: 3, Sold: 3, Runs: 1, StaleRefused: 1},
	}
}

// TestTable pins the table on a narrow and on a wide terminal.
func TestTable(t *testing.T) {
	for width, want := range map[int]string{
		60: `
Flash sale: 3 order services, 100 users, one item each, 3 in
stock. Every 4th user clicks twice.

strategy                 stock  sold  oversold  twice
none                         3   100        97      7
  oversold in 2 of 3 runs: reads and writes
process-mutex                3     3         0      0
  not oversold in 2 runs, by luck alone: has a mutex of its
  own
lock                         3     3         0      1
  not oversold, but two orders of one user in 1 of 2 runs
  (there was fog): has a lock
paused-fenced                3     -         -      -
  not run: the store gives no fencing tokens: is paused
atomic-update                3     3         0      0
  never oversold in 1 run: has one statement < another
`,
		140: `
Flash sale: 3 order services, 100 users, one item each, 3 in stock. Every 4th user clicks twice.

strategy                 stock  sold  oversold  twice  refused  seconds  sales/s
none                         3   100        97      7        0     0.50      200  oversold in 2 of 3 runs: reads and writes
process-mutex                3     3         0      0        0     1.00        3  not oversold in 2 runs, by luck alone: has a mutex of its
                                                                                  own
lock                         3     3         0      1        0     2.00        2  not oversold, but two orders of one user in 1 of 2 runs
                                                                                  (there was fog): has a lock
paused-fenced                3     -         -      -        -        -        -  not run: the store gives no fencing tokens: is paused
atomic-update                3     3         0      0        1     0.00        0  never oversold in 1 run: has one statement < another
`,
	} {
		var out bytes.Buffer
		d := &demonstration{Options: Options{Width: width, Out: &out, Users: 100, Stock: 3, Services: 3}}
		if err := d.table(someResults()); err != nil {
			t.Fatal(err)
		}
		got, legend, _ := strings.Cut("\n"+out.String(), "\n\nOf several runs")
		if got += "\n"; got != want {
			t.Errorf("at %d columns the table is%s\nwant%s", width, got, want)
		}
		for line := range strings.Lines(got + legend) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("at %d columns a line has %d: %s", width, n, line)
			}
		}
	}
}

// TestJSON pins the form.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := writeJSON(&out, someResults()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines:\n%s", len(lines)-1, out.String())
	}
	if want := `[{"strategy":"none","what":"reads and writes","stock":3,"sold":100,"left":2,"oversold":97,` +
		`"user_violations":7,"stale_refused":0,"seconds":0.5,"sales_per_second":200,` +
		`"runs":3,"oversold_runs":2,"violated_runs":2,"expected_wrong":true,"note":""},`; lines[0] != want {
		t.Errorf("the first line is\n%s\nwant\n%s", lines[0], want)
	}
	if !strings.Contains(lines[4], "statement < another") || !strings.HasSuffix(lines[4], "}]") {
		t.Errorf("the last line is\n%s", lines[4])
	}
	all := keys(t, out.Bytes())
	if len(all) != 5 || len(slices.Compact(all)) != 1 {
		t.Errorf("the keys differ from one object to the next: %q", all)
	}
}

// TestProgress: a bar where there is a terminal, lines elsewhere, and nothing
// after the end.
func TestProgress(t *testing.T) {
	for _, bar := range []bool{true, false} {
		var out bytes.Buffer
		p := newProgress(&out, 4)
		p.bar = bar
		p.show(1, "%s", "one")
		p.line("one: done")
		p.show(4, "four")
		p.end()
		p.show(4, "late")
		p.line("late")
		want := "one: done\n"
		if bar {
			want = "\r\x1b[K[######..................] one\r\x1b[K[########################] four\r\x1b[K"
		}
		if out.String() != want {
			t.Errorf("bar %v: %q, want %q", bar, out.String(), want)
		}
	}
}

// TestConclusion: the demonstration ends with one sentence, the lock beside no lock.
func TestConclusion(t *testing.T) {
	sold := func(name string, wrong bool, sold, twice int) Result {
		r := Result{Strategy: name, Stock: 3, ExpectedWrong: wrong}
		r.add(outcome{counts: counts{sold: sold, twice: twice}, took: time.Second})
		return r
	}
	for _, c := range []struct {
		results []Result
		want    string
		good    bool
	}{
		{[]Result{sold("none", true, 100, 7), sold("lock", false, 3, 0)}, "Without a lock 100 orders were taken for 3 items; with the lock 3, and never more.", true},
		{[]Result{sold("none", true, 100, 7), sold("lock", false, 4, 0)}, "Sold too much: none, lock.", false},
		{[]Result{sold("none", true, 3, 0), sold("lock", false, 3, 0)}, "Nothing went wrong: lock.", true},
		{[]Result{sold("process-mutex", true, 9, 0), sold("version", false, 3, 0)}, "Sold too much: process-mutex. Sold right: version.", true},
		{[]Result{sold("lock", false, 3, 1)}, "Sold too much: lock.", false},
		{[]Result{{Strategy: "paused-fenced"}}, "Nothing was run.", false},
	} {
		if got, good := conclusion(c.results); got != c.want || good != c.good {
			t.Errorf("%q, %v, want %q, %v", got, good, c.want, c.good)
		}
	}
	if names, _ := Strategies(); names[0] != "none" || names[1] != "lock" {
		t.Errorf("the lock is not beside none: %v", names)
	}
	got, good := cronConclusion([]CronResult{{Strategy: "plain", Ticks: 12, Twice: 9}, {Strategy: "min-hold", Ticks: 12, Once: 12}})
	if want := "plain: the job ran more than once at 9 of 12 ticks; min-hold: the job ran more than once at 0 of 12 ticks."; got != want || !good {
		t.Errorf("%q, %v, want %q", got, good, want)
	}
	var out bytes.Buffer
	if text := coloured(&out, "x\n", true); text != "x\n" {
		t.Errorf("colours without a terminal: %q", text)
	}
}
