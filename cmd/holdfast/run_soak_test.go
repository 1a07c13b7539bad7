//go:build soak && linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestMinHold: the name is closed until then, which one of an hour shows however slow the machine
// is, and open after it.
func TestMinHold(t *testing.T) {
	w := newWorld(t)
	w.run(0, "run", "-n", "--min-hold", "1h", "long", "--", "true")
	w.run(75, "run", "-n", "long", "--", "true")
	w.run(0, "ls").expectOut("closed")
	start := time.Now()
	w.run(0, "run", "-n", "--min-hold", "2s", "tick", "--", "true")
	w.run(0, "run", "-w", "1m", "tick", "--", "true")
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("the name was open again after %v", took)
	}
}

func TestWhatTheCommandLeavesBehindGoesOn(t *testing.T) {
	w := newWorld(t)
	file := w.path("left")
	p := w.command("run", "x", "--", "sh", "-c", `stamp "$0" >/dev/null 2>&1 & echo $!`, file)
	p.start().ends(0)
	pid := atoi(t, strings.TrimSpace(p.out.String()))
	defer syscall.Kill(pid, syscall.SIGKILL)
	after := nowStamp()
	await(t, "a stamp after the end of run", func() bool { return stamped(file) > after })
	w.run(0, "run", "-n", "x", "--", "true")
}

func TestSignalsWhileWaiting(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		p := w.start("run", "x", "--", "touch", w.path("ran"))
		w.awaitQueue("x", 1)
		p.signal(syscall.SIGUSR1) // the other signals do not disturb the wait
		p.signal(syscall.SIGWINCH)
		p.signal(s)
		p.ends(128 + int(s))
		w.awaitQueue("x", 0)
	}
	w.absent("ran")
}

// TestElectStandsAgain when its command has ended, and ends by a signal with
// the command's exit code.
func TestElectStandsAgain(t *testing.T) {
	w := newWorld(t)
	p := w.start("elect", "office", "--", "sh", "-c",
		`echo term $HOLDFAST_TOKEN >>terms; [ $(wc -l <terms) -lt 2 ] && exit 3; trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done`)
	await(t, "the second term", func() bool { return strings.Contains(p.out.String(), "up") })
	p.says("exit code 3; standing again in 1s")
	p.signal(syscall.SIGTERM)
	p.ends(5)
	text, err := os.ReadFile(w.path("terms"))
	testserver.Must(t, err)
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
	testserver.Must(t, os.Remove(w.path("a")))
	w.breakLock("office")
	awaitStamps(t, w.path("a")) // by the command of the second term
	p.says("the office was lost; standing again")
	w.run(75, "run", "-n", "office", "--", "true")
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
	testserver.Must(t, os.WriteFile(w.path("end"), nil, 0o600))
	p.ends(0)
	await(t, "the second vacancy", func() bool { return strings.Count(people.out.String(), "(vacant)") == 2 })
	for _, p := range []*process{people, programs} {
		p.signal(syscall.SIGINT)
		p.ends(0)
	}
	for _, l := range objects(t, programs.out.String()) {
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(l["time"]))
		vacant := l["vacant"] == true
		if err != nil || l["name"] != "office" || time.Since(at).Abs() > time.Hour || vacant != (l["value"] == nil) || vacant != (l["token"] == nil) {
			t.Errorf("%v, %v", l, err)
		}
	}
}

// TestTerminal: on a terminal the command has the foreground. It reads the keyboard, gets Ctrl-C, and is not
// stopped by Ctrl-Z.
func TestTerminal(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal("run", "x", "--", "sh", "-c", `read line; echo "read $line"; exit 3`)
	c.types("hello\n")
	c.ends(3)
	c.shows("read hello")
	c = w.onTerminal("run", "x", "--", "until", w.path("never"))
	c.shows("up")
	c.types(ctrlC)
	c.ends(128 + 2)
	end := w.hold("x", "--note", "somebody")
	c = w.onTerminal("run", "x", "--", "true")
	c.shows(`holdfast: waiting: lock "x" is held by another ("somebody"`)
	c.types(ctrlC)
	c.ends(128 + 2)
	end()
	file := w.path("stamps")
	c = w.onTerminal("run", "x", "--", "stamp", file)
	awaitStamps(t, file)
	c.types(ctrlZ)
	c.shows("^Z")
	after := nowStamp()
	await(t, "the command to go on", func() bool { return stamped(file) > after })
}

// TestTerminalIsSetAsBefore: a command that was killed cannot restore the terminal, so run does.
func TestTerminalIsSetAsBefore(t *testing.T) {
	w := newWorld(t)
	c := w.onTerminal("--store", w.cutURL(), "run", "--ttl", lossTTL, "x", "--", "sh", "-c", `stty raw -echo; trap "" TERM; sleep 1000`)
	// Kept open: a terminal loses its settings when its last user closes it.
	fd := int(c.kept.Fd())
	echoes := func() bool {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return err == nil && mode.Lflag&unix.ECHO != 0 && mode.Lflag&unix.ICANON != 0
	}
	await(t, "raw mode", func() bool { return !echoes() })
	w.cut()
	await(t, "the old mode", echoes)
	c.kept.Close()
	c.ends(76)
}

// TestPipeline: in a pipeline the command gets the terminal when it reads it, and the rest of the pipeline is not
// stopped.
func TestPipeline(t *testing.T) {
	w := newWorld(t)
	script := w.path("pipeline")
	if err := os.WriteFile(script, []byte("holdfast run x -- sh -c 'read line; echo \"got $line\"' | cat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := w.onTerminal("sh", script)
	c.types("hello\n")
	c.shows("got hello")
	c.ends(0)
}

// console is a process on a terminal of its own.
type console struct {
	*process
	kept, keyboard *os.File
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// onTerminal starts holdfast, or a shell, as the leader of a session on a new terminal.
func (w *world) onTerminal(args ...string) *console {
	w.t.Helper()
	c := &console{process: w.command(args...)}
	if args[0] == "sh" {
		c.cmd.Path, c.cmd.Args = "/bin/sh", args
	}
	master, kept, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	c.kept, c.keyboard = kept, master
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = kept, kept, kept
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c.start()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			c.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() { kept.Close(); master.Close() })
	return c
}

// types writes on the keyboard.
func (c *console) types(text string) {
	c.t.Helper()
	if _, err := c.keyboard.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// shows waits until a text is on the screen.
func (c *console) shows(text string) {
	c.t.Helper()
	await(c.t, text+" on the screen", func() bool { return strings.Contains(c.out.String(), text) })
}

// TestWaitForAServer: with -w a server that is not there is waited for, and then named.
func TestWaitForAServer(t *testing.T) {
	w, server := redisWorld(t, testserver.RedisOptions{})
	server.Kill()
	patient := w.start("run", "-w", "1m", "x", "--", "echo", "got it")
	w.run(69, "run", "-w", "1s", "x", "--", "true").expectErr("connection refused")
	server.Start()
	patient.ends(0)
	patient.expectOut("got it")
}

func TestStoreUnreachable(t *testing.T) {
	w := newWorldOf(t, "file:///proc/version/locks")
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"break", "x", "--token", "1"}, {"run", "x", "--", "touch", w.path("ran")}} {
		w.run(69, args...).expectErr("cannot open file:///proc/version/locks")
	}
	w.env = append(w.env, "XDG_STATE_HOME=/proc/version")
	w.unset("HOLDFAST_STORE")
	w.run(69, "ls").expectErr("another store can be named by --store or HOLDFAST_STORE")
}

// TestDoctor: the worst finding decides the exit code.
func TestDoctor(t *testing.T) {
	w := newWorld(t)
	w.run(0, "doctor").expectOut("ok       lock: taking, renewing and giving back a lock took ")
	for _, f := range objects(t, w.run(0, "doctor", "-o", "json").out.String()) {
		if f["check"] == nil || f["found"] == nil || (f["severity"] != "ok") != (f["risk"] != nil && f["remedy"] != nil) {
			t.Errorf("a finding that is not ok has a risk and a remedy, others have not: %v", f)
		}
	}
	w.run(64, "doctor", "--store", "nosuch://x")
	w.run(1, "doctor", "--store", "file:///proc/version/locks").expectOut("error    lock: cannot open file:///proc/version/locks")
	w.run(2, "doctor", "--strict").expectOut("warning  place: ") // the test's directory is a temporary one
	if out := w.run(0, "doctor", "-q").out.String(); strings.Contains(out, "ok  ") || !strings.Contains(out, "warning  place: ") {
		t.Errorf("doctor -q printed\n%s", out)
	}
	w.run(1, "doctor", "--strict", "--store", "redis://127.0.0.1:1").expectOut("connection refused")
	w.hold("damaged")
	files, err := filepath.Glob(filepath.Join(w.locks, "holdfast-names", "*damaged*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	testserver.Must(t, os.WriteFile(files[0], []byte("nonsense"), 0o600))
	w.run(1, "doctor").expectOut("error    records: ")
}
