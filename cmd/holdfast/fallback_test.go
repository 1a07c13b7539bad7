//go:build linux

package main

import (
	"strings"
	"testing"
)

// TestFallbackUsage: what cannot work is refused before anything is done.
func TestFallbackUsage(t *testing.T) {
	w := newWorld(t)
	other := "file://" + w.path("second")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"is for run and elect", []string{"ls", "--fallback", other}},
		{"is for run and elect", []string{"show", "x", "--fallback", other}},
		{"is for run and elect", []string{"doctor", "--fallback-after", "1s"}},
		{"give both", []string{"run", "--fallback-after", "1s", "x", "--", "true"}},
		{"must not be negative", []string{"run", "--fallback", other, "--fallback-after", "-1s", "x", "--", "true"}},
		{"no store has the URL scheme", []string{"run", "--fallback", "nosuch://x", "x", "--", "true"}},
		{"hf.prefix belongs in", []string{"run", "--fallback", other + "?hf.prefix=a", "x", "--", "true"}},
		{"the second store is the first", []string{"run", "--fallback", "file://" + w.locks, "x", "--", "true"}},
	} {
		w.run(64, c.args...).expectErr(c.says)
	}
	// A second store that is down does not keep the first from being used. Commands that only look
	// ignore it.
	w.env = append(w.env, "HOLDFAST_FALLBACK=redis://:"+escapedPassword+"@127.0.0.1:1")
	p := w.run(0, "run", "x", "--", "true")
	p.expectErr("there is nothing to fall back to")
	p.hidesPassword()
	if p := w.run(0, "ls"); strings.Contains(p.err.String(), "fall") {
		t.Errorf("ls wrote %q", p.err.String())
	}
	w.run(69, "--store", "redis://127.0.0.1:1", "run", "x", "--", "true")
}
