//go:build linux

package main

import (
	"os"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// crowd starts n processes that take one name in turn.
func (w *world) crowd(n int) {
	w.t.Helper()
	testserver.TakeTurn(w.t)
	log := w.path("log")
	var crowd []*process
	start := time.Now()
	for range n {
		crowd = append(crowd, w.start("run", "-w", "60s", "crowd", "--",
			"sh", "-c", `echo begin $$ >>"$0"; echo end $$ >>"$0"`, log))
	}
	for _, p := range crowd {
		select {
		case <-p.done:
		case <-time.After(time.Until(start.Add(crowdLimit))):
			w.t.Fatalf("after %v one is still waiting; it wrote\n%s", crowdLimit, p.err.String())
		}
		code := p.cmd.ProcessState.ExitCode()
		if code != 0 || p.out.String() != "" || strings.Contains(p.err.String(), "lost") {
			w.t.Errorf("exit code %d; it wrote\n%s%s", code, p.out.String(), p.err.String())
		}
	}
	w.t.Logf("%d processes in %v", n, time.Since(start).Round(time.Millisecond))
	text, err := os.ReadFile(log)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2*n {
		w.t.Fatalf("%d lines of %d commands", len(lines), n)
	}
	for i := 0; i < len(lines); i += 2 {
		if pid, ok := strings.CutPrefix(lines[i], "begin "); !ok || lines[i+1] != "end "+pid {
			w.t.Fatalf("P1: two commands ran at the same time:\n%s\n%s", lines[i], lines[i+1])
		}
	}
}

// crowdLimit is the time of -w, and some for starting and ending.
const crowdLimit = 90 * time.Second
