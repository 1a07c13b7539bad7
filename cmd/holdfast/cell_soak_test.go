//go:build soak && linux

package main

import (
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// objects reads the JSON objects that a command printed.
func objects(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, o)
	}
	return all
}

// TestCellCommands: an operator looks at a cell, replaces a member that has died, and ends a session.
func TestCellCommands(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{Members: 3, Args: []string{"--audit", w.path("audit")}})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs())
	said := objects(t, w.run(0, "cell", "status", "-o", "json").out.String())
	leaders := 0
	for _, s := range said {
		if s["leads"] == true {
			leaders++
		}
		if s["cell"] != said[0]["cell"] {
			t.Errorf("the members are of several cells: %v", said)
		}
	}
	if len(said) != 3 || leaders != 1 {
		t.Errorf("the members say %v", said)
	}
	w.run(0, "cell", "status").expectOut("leads")
	w.run(0, "cell", "compact").expectOut(server.Members[2].Addr + ": ")

	// A hold is broken.
	broken := w.start("run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; sleep 60")
	await(t, "the hold", func() bool { return strings.Contains(broken.out.String(), "\n") })
	w.run(0, "break", "job", "--token", strings.TrimSpace(broken.out.String()))
	broken.ends(76)

	// A session is seen, and ended.
	holder := w.start("run", "job", "--", "sleep", "60")
	await(t, "the hold", func() bool { return strings.Contains(w.run(0, "ls").out.String(), "job") })
	sessions := objects(t, w.run(0, "cell", "sessions", "-o", "json").out.String())
	if len(sessions) != 1 || sessions[0]["holds"] != 1.0 {
		t.Fatalf("the sessions are %v", sessions)
	}
	w.run(0, "cell", "sessions").expectOut("HOLDS")
	w.run(0, "cell", "kill", sessions[0]["id"].(string))
	holder.ends(76)
	w.run(0, "cell", "sessions").expectErr("no sessions")
	w.run(64, "cell", "kill", "nonsense").expectErr(`"nonsense" is no session's`)

	// A member dies and is replaced.
	lost := server.Members[2]
	lost.Kill()
	w.run(1, "cell", "status").expectErr("no answer from " + lost.Addr)
	w.run(0, "cell", "remove", lost.Name)
	var args []string
	for _, m := range objects(t, w.run(0, "cell", "members", "-o", "json").out.String()) {
		args = append(args, "--member", m["name"].(string)+"="+m["peer_url"].(string))
	}
	if len(args) != 4 {
		t.Errorf("the members are %v", args)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().String()
	l.Close()
	w.run(64, "cell", "add", "10.0.0.1").expectErr("host:port")
	w.run(0, "cell", "add", "http://"+port).expectOut("to be started")
	args = append([]string{"serve", "--join", "--name", "new", "--data", w.path("new"), "--listen", "127.0.0.1:0", "--member", "new=http://" + port}, args...)
	added := w.start(args...)
	await(t, "the new member counts", func() bool {
		for _, m := range objects(t, w.run(0, "cell", "members", "-o", "json").out.String()) {
			if m["name"] == "new" && m["learner"] != true {
				return strings.Contains(added.out.String(), "cell://")
			}
		}
		return false
	})
	url := strings.TrimSpace(added.out.String())
	w.run(0, "--store", url, "cell", "status").expectOut("new")
	w.run(0, "--store", url, "run", "job", "--", "true")
	added.signal(syscall.SIGTERM)
	added.ends(0)
	w.run(64, "--store", "file://"+w.path("locks"), "cell", "status").expectErr("cell://")
	audit, err := os.ReadFile(w.path("audit"))
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, line := range objects(t, string(audit)) {
		done = append(done, line["msg"].(string))
	}
	if want := []string{"a hold was broken", "a session was killed", "a member was removed", "a member was added"}; !slices.Equal(done, want) {
		t.Errorf("the audit log has %q, want %q", done, want)
	}
}

// TestCellBackup: a cell that is lost is made anew of its backup.
func TestCellBackup(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs())
	if err := os.WriteFile(w.path("text"), []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(0, "files", "put", "app/config", w.path("text"))
	before := w.run(0, "run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").out.String()
	w.run(0, "cell", "backup", w.path("backup")).expectErr("KiB")
	w.run(64, "cell", "backup", w.path("backup")).expectErr("there already")
	piped := w.run(0, "cell", "backup", "-").out.String()
	if len(piped) < 4096 {
		t.Errorf("the backup to the standard output has %d bytes", len(piped))
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	unwritten := w.command("cell", "backup", "-")
	unwritten.cmd.Stdout = full
	unwritten.start().ends(70)
	server.Members[0].Kill()
	w.run(69, "cell", "backup", w.path("other"))
	if _, err := os.Stat(w.path("other")); !os.IsNotExist(err) {
		t.Errorf("a backup that is not whole: %v", err)
	}
	w.run(1, "cell", "restore", w.path("text"), "--data", w.path("data")).expectErr("no backup")
	w.run(0, "cell", "restore", w.path("backup"), "--data", w.path("data"))
	w.run(1, "cell", "restore", w.path("backup"), "--data", w.path("data")).expectErr("new directory")
	restored := w.start("serve", "--data", w.path("data"), "--listen", "127.0.0.1:0")
	await(t, "the restored cell serves", func() bool { return strings.Contains(restored.out.String(), "cell://") })
	url := strings.TrimSpace(restored.out.String())
	if got := w.run(0, "--store", url, "files", "get", "app/config").out.String(); got != "precious\n" {
		t.Errorf("the file is %q", got)
	}
	after := w.run(0, "--store", url, "run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").out.String()
	if len(after) < len(before) || len(after) == len(before) && after <= before {
		t.Errorf("P3: the token %s after %s", after, before)
	}
	restored.signal(syscall.SIGTERM)
	restored.ends(0)
}
