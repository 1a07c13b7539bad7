//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestServeSettings: what serve is told stands in flags, in the environment and in a file, in this order.
func TestServeSettings(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.path("settings"), []byte("# of the test\nname = filed\nlisten = nonsense\ndata = "+w.path("filed")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "HOLDFAST_SERVE_LISTEN=127.0.0.1:0", "HOLDFAST_SERVE_CONFIG="+w.path("settings"))
	member := w.start("serve", "--name", "flagged")
	await(t, "the member serves", func() bool { return strings.Contains(member.out.String(), "cell://127.0.0.1:") })
	if _, err := os.Stat(w.path("filed")); err != nil {
		t.Errorf("the directory of the file: %v", err)
	}
	w.run(0, "--store", strings.TrimSpace(member.out.String()), "cell", "status").expectOut("flagged")
	w.run(69, "serve").expectErr("another member runs there")
	member.signal(syscall.SIGTERM)
	member.ends(0)
	if err := os.WriteFile(w.path("settings"), []byte("colour = blue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(64, "serve").expectErr("no setting")
	w.env = append(w.env, "HOLDFAST_SERVE_ELECTION=soon")
	w.run(64, "serve").expectErr("HOLDFAST_SERVE_ELECTION")
}
