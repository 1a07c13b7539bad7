//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
	p := w.run(0, "run", "orders/42", "--", "env")
	values := map[string]string{}
	for line := range strings.Lines(p.out.String()) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, twice := values[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		values[key] = value
	}
	token := values["HOLDFAST_TOKEN"]
	if values["HOLDFAST_NAME"] != "orders/42" || values["KEEP"] != "me" || values["HOLDFAST_SEQUENCER"] != "hf1:x:"+token+":orders%2F42" {
		t.Errorf("environment: %v", values)
	}
	var held []struct {
		Store, Name, Mode, Sequencer string
		Token                        json.Number
	}
	if err := json.Unmarshal([]byte(values["HOLDFAST_HELD"]), &held); err != nil || len(held) != 1 {
		t.Fatalf("HOLDFAST_HELD %q: %v", values["HOLDFAST_HELD"], err)
	}
	h := held[0]
	if h.Name != "orders/42" || h.Mode != "exclusive" || h.Token.String() != token || h.Sequencer != values["HOLDFAST_SEQUENCER"] || !strings.HasSuffix(h.Store, "/locks") {
		t.Errorf("HOLDFAST_HELD: %+v", h)
	}
}

func TestRunCommandMissing(t *testing.T) {
	w := newWorld(t)
	plain, script := w.path("plain"), w.path("script")
	for file, mode := range map[string]os.FileMode{plain: 0o600, script: 0o700} {
		if err := os.WriteFile(file, []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	// What could not be started has no minimum hold.
	w.run(126, "run", "-n", "--min-hold", "1h", "x", "--", script)
	w.run(126, "run", "-n", "--min-hold", "1h", "x", "--", script)
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
	w.run(7, "run", "-n", "-E", "7", "x", "--", "touch", w.path("ran"))
	w.run(0, "run", "x", "-n", "-E", "0", "--", "touch", w.path("ran"))
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("a command ran without its lock")
	}
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
	w.run(64, "run", "-n", "--slots", "4", "sem", "--", "true")
	w.run(0, "show", "sem").expectOut("2 of 3")
	end()
}

func TestDescriptors(t *testing.T) {
	w := newWorld(t)
	extra, err := os.Create(w.path("extra"))
	if err != nil {
		t.Fatal(err)
	}
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
	p.signal(syscall.SIGUSR1)
	p.awaitOutput(syscall.SIGUSR1.String())
	p.signal(syscall.SIGTERM)
	p.awaitOutput(syscall.SIGTERM.String())
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
	if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.ends(0)
}

func TestDefaultStore(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.path("state"))
	w.unset("HOLDFAST_STORE")
	w.run(0, "run", "x", "--", "true")
	dir := filepath.Join(w.path("state"), "holdfast", "locks")
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the default store: %v, %v", info, err)
	}
	w.env = append(w.env, "XDG_STATE_HOME=relative")
	w.run(0, "run", "x", "--", "true")
	if _, err := os.Stat(filepath.Join(w.dir, ".local", "state", "holdfast", "locks")); err != nil {
		t.Error(err)
	}
}
