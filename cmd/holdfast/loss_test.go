//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// cutURL is a URL of the world's store whose users can be cut off.
func (w *world) cutURL() string { return "cut://" + w.locks }

// cut cuts off all processes that have opened the store by cutURL.
func (w *world) cut() {
	w.t.Helper()
	if err := os.WriteFile(w.locks+".cut", nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// renewedTTL is for holds that must not be lost if a renewal is late because the machine is busy, and that
// learn of a break at the next renewal, three seconds later.
const renewedTTL = "9s"

func TestBreak(t *testing.T) {
	w := newWorld(t)
	file, next := w.path("stamps"), w.path("next")
	p := w.start("run", "--ttl", renewedTTL, "--note", "the victim", "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	var info struct{ Holders []struct{ Token json.Number } }
	if err := json.Unmarshal([]byte(w.run(0, "show", "x", "-o", "json").out.String()), &info); err != nil || len(info.Holders) != 1 {
		t.Fatal(info, err)
	}
	token := info.Holders[0].Token.String()
	w.run(64, "break", "x").expectErr("token")
	w.run(1, "break", "x", "--token", "1").expectErr("nothing was broken")
	w.run(1, "break", "y", "--token", token)
	w.run(0, "break", "x", "--token", token, "-o", "json").expectOut(`{"name":"x","broken":{"mode":"exclusive","token":` + token)
	w.run(1, "break", "x", "--token", token)
	p.ends(76)
	p.expectErr("broken by an operator; the command was killed")
	// All its processes are dead now, before the next holder begins.
	w.run(0, "run", "-n", "x", "--", "once", next)
	goneBefore(t, next, treeFiles(file)...)
	for _, f := range treeFiles(file) {
		if stamped(f+".term") != 0 {
			t.Errorf("%s got SIGTERM", filepath.Base(f))
		}
	}
}

// breakLock breaks the only hold on a name.
func (w *world) breakLock(name string) {
	w.t.Helper()
	var info struct{ Holders []struct{ Token json.Number } }
	if err := json.Unmarshal([]byte(w.run(0, "show", name, "-o", "json").out.String()), &info); err != nil || len(info.Holders) != 1 {
		w.t.Fatal(info, err)
	}
	w.run(0, "break", name, "--token", info.Holders[0].Token.String())
}
