//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestServeSettings: what serve is told stands in flags, or else in the environment.
func TestServeSettings(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_SERVE_LISTEN=127.0.0.1:0", "HOLDFAST_SERVE_DATA="+w.path("data"), "HOLDFAST_SERVE_NAME=other")
	member := w.start("serve", "--name", "flagged")
	member.awaitOutput("cell://127.0.0.1:")
	if _, err := os.Stat(w.path("data")); err != nil {
		t.Errorf("the directory of the environment: %v", err)
	}
	w.run(0, "--store", strings.TrimSpace(member.out.String()), "cell", "status").expectOut("flagged")
	w.run(69, "serve").expectErr("another member runs there")
	member.signal(syscall.SIGTERM)
	member.ends(0)
	w.env = append(w.env, "HOLDFAST_SERVE_ELECTION=soon")
	w.run(64, "serve").expectErr("HOLDFAST_SERVE_ELECTION")
}
