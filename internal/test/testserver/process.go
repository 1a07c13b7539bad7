package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one server program of a test, which can be ended and started again.
type process struct {
	Addr  string // for clients, on the loopback interface, host:port; the same after Start
	Clock *Clock // its wall clock, if it has one of its own

	t      testing.TB
	args   []string
	ready  string // the text that it writes when it serves
	attr   *syscall.SysProcAttr
	env    []string // nil: the test's
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	paused bool

	mu  sync.Mutex
	log strings.Builder
}

// start starts the process and waits until it serves.
func (p *process) start() error {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.SysProcAttr, cmd.Env = endingWithParent(p.attr), p.env
	cmd.Dir = os.TempDir() // another user may not read the test's directory
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err != nil {
		return err
	}
	started, serves, exited := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the parent is this thread: see endingWithParent
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.watch(cmd, out, serves)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.exited = cmd, exited
	select {
	case err := <-serves:
		return err
	case <-time.After(60 * time.Second):
		p.Kill()
		return errors.New("did not serve within 60 s")
	}
}

// watch reads the server's log until the server ends. It sends nil to serves when the server
// serves, or the reason why it ended before.
func (p *process) watch(cmd *exec.Cmd, out io.Reader, serves chan<- error) {
	told := false
	from := len(p.Log())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		fmt.Fprintln(&p.log, lines.Text())
		p.mu.Unlock()
		if !told && strings.Contains(lines.Text(), p.ready) {
			serves <- nil
			told = true
		}
	}
	if err := cmd.Wait(); !told {
		serves <- fmt.Errorf("%w\n%s", errors.Join(errors.New("ended"), err), p.Log()[from:])
	}
}

// started starts a server, at most five times: another program may take its port before it does. Called is what the
// failure calls the server.
func started[Server any](t testing.TB, called string, start func() (Server, error)) (s Server) {
	t.Helper()
	var err error
	for range 5 {
		if s, err = start(); err == nil {
			return s
		}
	}
	t.Fatalf("%s did not start: %v", called, err)
	return s
}

// serve starts a server at a port of its own, which ends with the test. Args returns its arguments.
func (p *process) serve(args func(port string) []string) {
	p.t.Helper()
	p.t.Cleanup(p.Kill)
	p.Addr = started(p.t, "a server", func() (string, error) {
		addr := FreeAddrs(p.t, 1)[0]
		p.args = args(portOf(addr))
		return addr, p.start()
	})
}

// Start starts a server at a port of its own, which ends with the test. It serves when it has written ready; args
// returns the program and its arguments.
func Start(t testing.TB, ready string, args func(port string) []string) (addr string) {
	t.Helper()
	p := &process{t: t, ready: ready}
	p.serve(args)
	return p.Addr
}

// together runs the starts of several servers side by side. If one of them fails, all are killed.
func together[Server interface{ Kill() }](servers []Server, start func(Server) error) (errs error) {
	started := make(chan error, len(servers))
	for _, s := range servers {
		go func() { started <- start(s) }()
	}
	for range servers {
		errs = errors.Join(errs, <-started)
	}
	for _, s := range servers {
		if errs != nil {
			s.Kill()
		}
	}
	return errs
}

// addrs joins the addresses of servers by commas, as a store URL has them.
func addrs[Server any](servers []Server, addr func(Server) string) string {
	var all []string
	for _, s := range servers {
		all = append(all, addr(s))
	}
	return strings.Join(all, ",")
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Log returns all that the server has written.
func (p *process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Start starts the server again after Stop or Kill, at the same address, with
// the data that is on its disk.
func (p *process) Start() {
	p.t.Helper()
	err := error(nil)
	for range 20 { // processes of the last run may not have ended yet
		if err = p.start(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatalf("%s did not start again: %v", filepath.Base(p.args[0]), err)
}

// Stop shuts the server down, as an operator would (SIGTERM).
func (p *process) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the server at once (SIGKILL), paused or not, with the processes that it has
// started. It does nothing if the server has ended.
func (p *process) Kill() { p.end(syscall.SIGKILL) }

func (p *process) end(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	if s == syscall.SIGKILL {
		p.cmd.Process.Signal(syscall.SIGSTOP) // it starts no more of them
		for _, child := range p.children() {
			syscall.Kill(child, s)
		}
	}
	p.cmd.Process.Signal(s) // fails if it has ended
	<-p.exited
}

// Running reports whether the server has been started and has not ended.
func (p *process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Pause stops the server (SIGSTOP) with the processes that it has started: it keeps
// its connections and answers nothing, while its clock runs on. Resume lets it go
// on.
func (p *process) Pause() { p.signal(syscall.SIGSTOP); p.paused = true }

// Resume lets a paused server go on (SIGCONT).
func (p *process) Resume() { p.signal(syscall.SIGCONT); p.paused = false }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	Must(p.t, p.cmd.Process.Signal(s))
	for _, child := range p.children() {
		syscall.Kill(child, s) // fails if it has ended
	}
}

// children returns the processes that the server has started.
func (p *process) children() (pids []int) {
	parent := strconv.Itoa(p.PID())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a malformed pattern only
	for _, name := range stats {
		text, _ := os.ReadFile(name) // fails if it has ended
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == parent {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// PID is the server's process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// FillDisk makes the server's disk full, until the server's next start: it may not make a file larger than a
// byte (RLIMIT_FSIZE, which needs no mount and no rights), so that every write to its log fails, perhaps after a
// part of it. What is written stays.
func (p *process) FillDisk() {
	p.t.Helper()
	if p.Running() {
		prepare(p.t, nil, Need(p.t, "prlimit", "util-linux"), "--pid", strconv.Itoa(p.PID()), "--fsize=1:")
	}
}
