//go:build soak && linux

package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestElectStandsAgain when its command has ended, and ends by a signal with
// the command's exit code.
func TestElectStandsAgain(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "office", "--", "sh", "-c",
		`echo term $HOLDFAST_TOKEN >>terms; [ $(wc -l <terms) -lt 2 ] && exit 3; trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done`)
	await(t, "the second term", func() bool { return strings.Contains(p.out.String(), "up") })
	if !strings.Contains(p.err.String(), "exit code 3; standing again in 1s") {
		t.Errorf("elect wrote %q", p.err.String())
	}
	p.signal(syscall.SIGTERM)
	p.ends(5)
	text, err := os.ReadFile(w.path("terms"))
	if err != nil {
		t.Fatal(err)
	}
	terms := strings.Fields(strings.ReplaceAll(string(text), "term", ""))
	if len(terms) != 2 || terms[0] >= terms[1] { // decimals of the same length
		t.Errorf("the terms have the tokens %v, want two, increasing", terms)
	}
	w.run(0, "run", "-n", "office", "--", "true") // nothing is left
}

// TestElectLoses: the command of a leader that is broken or cut off is killed in
// time, and elect stands again.
func TestElectLoses(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "--ttl", renewedTTL, "office", "--", "stamp", w.path("a"))
	awaitStamps(t, w.path("a"))
	var shown struct {
		Holders []struct{ Token json.Number }
	}
	if err := json.Unmarshal([]byte(w.run(0, "show", "-o", "json", "office").out.String()), &shown); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path("a")); err != nil {
		t.Fatal(err)
	}
	w.run(0, "break", "office", "--token", shown.Holders[0].Token.String())
	awaitStamps(t, w.path("a")) // by the command of the second term
	if !strings.Contains(p.err.String(), "the office was lost; standing again") {
		t.Errorf("elect wrote %q", p.err.String())
	}
	w.run(75, "run", "-n", "office", "--", "true")
	once := w.start("elect", "--once", "other", "--", "sh", "-c", "exit 4")
	once.ends(4)
}

// TestLeaderWatch shows the present state first, then each change.
func TestLeaderWatch(t *testing.T) {
	w := newWorld(t)
	people := w.start("leader", "--watch", "office")
	programs := w.start("leader", "--watch", "-o", "json", "office")
	vacancy := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  \(vacant\)\n$`)
	await(t, "the vacancy", func() bool {
		return vacancy.MatchString(people.out.String()) && strings.Contains(programs.out.String(), `"vacant":true`)
	})
	p := w.start("elect", "--value", "me\x1b", "--once", "office", "--", "until", w.path("end"))
	await(t, "the leader", func() bool {
		return strings.Contains(people.out.String(), `me\x1b`) && strings.Contains(programs.out.String(), `"value":"me\u001b"`)
	})
	if err := os.WriteFile(w.path("end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
	await(t, "the second vacancy", func() bool { return strings.Count(people.out.String(), "(vacant)") == 2 })
	for _, p := range []*process{people, programs} {
		p.signal(syscall.SIGINT)
		p.ends(0)
	}
	for line := range strings.Lines(programs.out.String()) {
		var l struct {
			Time   time.Time
			Name   string
			Vacant bool
			Value  string
			Token  int64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Name != "office" || time.Since(l.Time).Abs() > time.Hour || l.Vacant != (l.Value == "") || l.Vacant != (l.Token == 0) {
			t.Errorf("line %q: %+v, %v", line, l, err)
		}
	}
}
