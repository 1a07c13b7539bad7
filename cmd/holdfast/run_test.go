//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestRunPassesThrough(t *testing.T) {
	w := newWorld(t)
	p := w.command("run", "x", "--", "sh", "-c", "cat; echo problem >&2; exit 3")
	p.cmd.Stdin = strings.NewReader("through\n")
	p.start().ends(3)
	if p.out.String() != "through\n" || p.err.String() != "problem\n" {
		t.Errorf("stdout %q, stderr %q", p.out.String(), p.err.String())
	}
	w.run(128+9, "run", "x", "--", "sh", "-c", "kill -9 $$")
	w.run(128+15, "run", "x", "--", "sh", "-c", "kill $$")
	w.run(255, "run", "x", "--", "sh", "-c", "exit 255")
	// Arguments are passed on unchanged, without a shell.
	p = w.run(0, "run", "-n", "x", "--", "echo", "-n", "$HOME", "--", "*")
	if p.out.String() != "$HOME -- *" {
		t.Errorf("echo wrote %q", p.out.String())
	}
}

func TestRunEnvironment(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_TOKEN=old", "HOLDFAST_NAME=old", "HOLDFAST_HELD=nonsense", "KEEP=me")
	text := w.run(0, "run", "orders/42", "--", "env").out.String()
	token := regexp.MustCompile(`(?m)^HOLDFAST_TOKEN=(\d+)$`).FindAllStringSubmatch(text, -1)
	if len(token) != 1 {
		t.Fatalf("environment:\n%s", text)
	}
	sequencer := "hf1:x:" + token[0][1] + ":orders%2F42"
	for _, line := range []string{
		"KEEP=me", "HOLDFAST_NAME=orders/42", "HOLDFAST_SEQUENCER=" + sequencer,
		`HOLDFAST_HELD=\[\{"store":".*/locks","name":"orders/42","mode":"exclusive","token":` + token[0][1] + `,"sequencer":"` + sequencer + `"\}\]`,
	} {
		if n := len(regexp.MustCompile(`(?m)^`+line+`$`).FindAllString(text, -1)); n != 1 {
			t.Errorf("%q is there %d times:\n%s", line, n, text)
		}
	}
}

func TestRunCommandMissing(t *testing.T) {
	w := newWorld(t)
	plain, script := w.path("plain"), w.path("script")
	for file, mode := range map[string]os.FileMode{plain: 0o600, script: 0o700} {
		testserver.Must(t, os.WriteFile(file, []byte("#!/no/such/interpreter\n"), mode))
	}
	// What could not be started has no minimum hold.
	w.run(126, "run", "-n", "--min-hold", "1h", "x", "--", script)
	w.run(126, "run", "-n", "--min-hold", "1h", "x", "--", script)
	w.run(0, "run", "-n", "--min-hold", "1h", "closed", "--", "true")
	w.run(75, "run", "-n", "closed", "--", "true").expectErr(`lock "closed" is held by another, or closed for another `)
	// The other errors are found before the lock is taken.
	defer w.hold("x")()
	w.run(127, "run", "-n", "x", "--", "no-such-command")
	w.run(127, "run", "-n", "x", "--", w.path("nothing"))
	w.run(126, "run", "-n", "x", "--", plain)
	w.run(126, "run", "-n", "x", "--", w.dir)
	w.run(75, "run", "-n", "x", "--", "true")
}

func TestNotAcquired(t *testing.T) {
	w := newWorld(t)
	end := w.hold("x", "--note", "the other one")
	w.run(75, "run", "-n", "x", "--", "touch", w.path("ran")).expectErr(`lock "x" is held by another ("the other one", token `)
	w.run(75, "run", "-w", "50ms", "x", "--", "touch", w.path("ran")).expectErr("the other one")
	w.run(75, "run", "-w", "0s", "x", "--", "touch", w.path("ran"))
	w.absent("ran")
	waiter := w.start("run", "-w", "1m", "x", "--", "echo", "got it")
	w.awaitQueue("x", 1)
	end()
	waiter.ends(0)
	waiter.expectOut("got it")
}

func TestSharedAndSlots(t *testing.T) {
	w := newWorld(t)
	end := w.hold("rw", "--shared")
	w.run(0, "run", "-n", "--shared", "rw", "--", "true")
	w.run(75, "run", "-n", "rw", "--", "true")
	w.run(64, "run", "-n", "--slots", "2", "rw", "--", "true").expectErr("another kind of lock")
	end()
	end = w.hold("sem", "--slots", "3", "--permits", "2")
	w.run(0, "run", "-n", "--slots", "3", "sem", "--", "true")
	w.run(75, "run", "-n", "--slots", "3", "--permits", "2", "sem", "--", "true")
	w.run(64, "run", "-n", "--slots", "4", "sem", "--", "true").expectErr("another number of slots: 3, not 4")
	w.run(0, "show", "sem").expectOut("2 of 3")
	end()
}

func TestDescriptors(t *testing.T) {
	w := newWorld(t)
	extra, err := os.Create(w.path("extra"))
	testserver.Must(t, err)
	defer extra.Close()
	p := w.command("run", "x", "--", "sh", "-c", "for f in /proc/$$/fd/*; do readlink $f || :; done; echo through >&3")
	p.cmd.ExtraFiles = []*os.File{extra}
	p.start().ends(0)
	if strings.Contains(p.out.String(), w.locks) {
		t.Errorf("the command has files of the store:\n%s", p.out.String())
	}
	if text, _ := os.ReadFile(w.path("extra")); string(text) != "through\n" {
		t.Errorf("a descriptor of the caller's was not passed on: %q", text)
	}
}

func TestSignalsWhileRunning(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "signals")
	p.awaitOutput("up")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTERM} {
		p.signal(s)
		p.awaitOutput(s.String() + "\n")
	}
	w.run(75, "run", "-n", "x", "--", "true") // the command has not ended, so the lock is held
	p.signal(syscall.SIGTERM)
	p.ends(5)
	w.run(0, "run", "-n", "x", "--", "true")
}

func TestSignalsReachTheGroup(t *testing.T) {
	w := newWorld(t)
	p := w.start("run", "x", "--", "sh", "-c", "trap : USR1 TERM; signals & wait; wait; wait; echo the end")
	p.awaitOutput("up")
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		p.signal(s)
		p.awaitOutput(s.String())
	}
	p.signal(syscall.SIGTERM)
	p.ends(0)
	p.expectOut("the end")
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	w := newWorld(t)
	p := w.command("run", "x", "--", "until", w.path("go"))
	p.cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, p.cmd.Args...)
	p.cmd.Path = "/bin/sh"
	p.start()
	p.awaitOutput("up")
	p.signal(syscall.SIGHUP) // as if the terminal of a nohup had gone
	testserver.Must(t, os.WriteFile(w.path("go"), nil, 0o600))
	p.ends(0)
}

// TestDefaultStore: the default store is this user's own, and is made when a lock is first taken.
func TestDefaultStore(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.path("state"))
	w.unset("HOLDFAST_STORE")
	w.run(0, "ls")
	w.run(0, "show", "x").expectOut("x: free")
	if entries, err := os.ReadDir(w.dir); err != nil || len(entries) != 0 {
		t.Errorf("ls and show have made %v, %v", entries, err)
	}
	w.run(0, "run", "x", "--", "true")
	info, err := os.Stat(filepath.Join(w.path("state"), "holdfast", "locks"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the default store: %v, %v", info, err)
	}
	w.env = append(w.env, "XDG_STATE_HOME=relative")
	w.run(0, "run", "x", "--", "true")
	if _, err := os.Stat(filepath.Join(w.dir, ".local", "state", "holdfast", "locks")); err != nil {
		t.Error(err)
	}
}

// TestFallbackIsDown: a second store that is down does not keep the first from being used. Commands that only look
// ignore it.
func TestFallbackIsDown(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_FALLBACK=redis://:"+escapedPassword+"@127.0.0.1:1")
	p := w.run(0, "run", "x", "--", "true")
	p.expectErr("there is nothing to fall back to")
	p.hidesPassword()
	if p := w.run(0, "ls"); strings.Contains(p.err.String(), "fall") {
		t.Errorf("ls wrote %q", p.err.String())
	}
}

func TestNested(t *testing.T) {
	w := newWorld(t)
	p := w.run(0, "run", "a", "--", "holdfast", "run", "b", "--", "holdfast", "run", "-n", "a", "--",
		"sh", "-c", `echo $HOLDFAST_NAME; holdfast ls -o json; echo "$HOLDFAST_HELD"; ps -o pgid= $$ | tr -d ' '; ps -o pgid= $PPID | tr -d ' '`)
	lines := strings.Split(p.out.String(), "\n")
	if len(lines) < 6 || lines[0] != "a" || !strings.Contains(lines[1], `"name":"a"`) || !strings.Contains(lines[2], `"name":"b"`) {
		t.Fatalf("unexpected:\n%s", p.out.String())
	}
	if strings.Count(lines[3], `"sequencer"`) != 2 {
		t.Errorf("HOLDFAST_HELD is %s", lines[3])
	}
	// Joining does not change the outer hold, and each command ends once.
	w.run(0, "run", "-n", "a", "--", "true")
	w.run(0, "run", "-n", "b", "--", "true")
	w.run(9, "run", "a", "--", "holdfast", "run", "a", "--", "sh", "-c", "exit 9")
	w.run(128+9, "run", "a", "--", "sh", "-c", "holdfast run a -- sh -c 'kill -9 $$'; exit $?")
}

func TestNestedModes(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "a", "--", "holdfast", "run", "-n", "--shared", "a", "--", "true")
	w.run(0, "run", "--shared", "a", "--", "holdfast", "run", "-n", "--shared", "a", "--", "true")
	w.run(64, "run", "--shared", "a", "--", "holdfast", "run", "a", "--", "true").expectErr("would wait for itself")
	w.run(0, "run", "--slots", "2", "--permits", "2", "s", "--", "holdfast", "run", "-n", "--slots", "2", "s", "--", "true")
	w.run(64, "run", "--slots", "2", "s", "--", "holdfast", "run", "--slots", "2", "--permits", "2", "s", "--", "true").expectErr("would wait for itself")
	w.run(0, "run", "--slots", "3", "s", "--", "holdfast", "run", "-n", "--slots", "3", "--permits", "2", "s", "--", "true")
}

// TestStaleHeld: the environment alone proves nothing.
func TestStaleHeld(t *testing.T) {
	w := newWorld(t)
	other := w.start("run", "b", "--", "sh", "-c", `echo "$HOLDFAST_HELD"; sleep 1000`)
	other.awaitOutput("\n")
	held := strings.TrimSpace(other.out.String())
	// The hold of another cannot be claimed under a name that is not its own.
	end := w.hold("a")
	w.env = append(w.env, "HOLDFAST_HELD="+strings.ReplaceAll(held, `"name":"b"`, `"name":"a"`))
	w.run(75, "run", "-n", "a", "--", "true")
	end()
	// In another store the name is another lock.
	w.env = append(w.env, "HOLDFAST_HELD="+held)
	w.run(0, "run", "-n", "b", "--", "true")
	w.run(0, "--store", "file://"+w.path("elsewhere"), "run", "-n", "b", "--", "sh", "-c", `test "$(holdfast ls | wc -l)" = 2`)
	// That hold is over.
	other.signal(syscall.SIGKILL)
	w.run(0, "run", "-w", "1m", "b", "--", "sh", "-c", `test "$HOLDFAST_HELD" != "$0"`, held)
}

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
	p := w.start("run", "--ttl", renewedTTL, "--note", "the \x1bvictim", "x", "--", "tree", file)
	awaitStamps(t, treeFiles(file)...)
	token := w.tokenOf("x")
	w.run(64, "break", "x").expectErr("token")
	w.run(1, "break", "x", "--token", "1").expectErr(`no hold on "x" has the token 1: "the \x1bvictim" has held it for `)
	w.run(1, "break", "y", "--token", token).expectErr(`nothing was broken: nobody holds "y"`)
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
	w.run(0, "break", name, "--token", w.tokenOf(name))
}

// tokenOf returns the token of the only hold on a name.
func (w *world) tokenOf(name string) string {
	w.t.Helper()
	var info struct{ Holders []struct{ Token json.Number } }
	if err := json.Unmarshal([]byte(w.run(0, "show", name, "-o", "json").out.String()), &info); err != nil || len(info.Holders) != 1 {
		w.t.Fatal(info, err)
	}
	return info.Holders[0].Token.String()
}

// leader returns what the command leader shows: "" for a vacancy.
func (w *world) leader(name string) string {
	w.t.Helper()
	p := w.start("leader", name)
	code := p.wait()
	if vacant := p.out.String() == ""; vacant != (code == 1) || code > 1 {
		w.t.Fatalf("leader: exit code %d, wrote %q and %q", code, p.out.String(), p.err.String())
	}
	return strings.TrimSpace(p.out.String())
}

// TestElect: one process at a time runs its command; the next one in line is
// elected when the first ends, and the others see who it is.
func TestElect(t *testing.T) {
	w := newWorld(t)
	if got := w.leader("office"); got != "" {
		t.Errorf("a vacant office has the leader %q", got)
	}
	a := w.start("elect", "--value", "host-a:1", "office", "--", "stamp", w.path("a"))
	awaitStamps(t, w.path("a"))
	b := w.start("elect", "--value", "host b", "--once", "office", "--", "sh", "-c", "echo $HOLDFAST_NAME; exit 7")
	w.awaitQueue("office", 1)
	if got := w.leader("office"); got != "host-a:1" {
		t.Errorf("the leader is %q, want host-a:1", got)
	}
	if b.out.String() != "" {
		t.Error("two commands at a time")
	}
	c := w.start("elect", "office", "--", "true")
	w.awaitQueue("office", 2)
	c.signal(syscall.SIGTERM)
	c.ends(128 + 15)
	a.signal(syscall.SIGKILL)
	b.ends(7)
	if b.out.String() != "office\n" {
		t.Errorf("the second wrote %q", b.out.String())
	}
}

func TestElectRefuses(t *testing.T) {
	w := newWorld(t)
	w.run(64, "elect", "--value", strings.Repeat("x", holdfast.MaxNote+1), "office", "--", "true")
	w.run(127, "elect", "office", "--", "no-such-command")
	w.run(64, "run", "office", "--", "holdfast", "elect", "office", "--", "true")
}
