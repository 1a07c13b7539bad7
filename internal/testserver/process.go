package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
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
// Its methods end the test on failure; call them on the test's own goroutine, one
// at a time.
type process struct {
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
	cmd.SysProcAttr, cmd.Env = p.attr, p.env
	cmd.Dir = os.TempDir() // another user may not read the test's directory
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = endingWithParent(cmd.SysProcAttr)
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

// Kill ends the server at once (SIGKILL), paused or not, with the processes that it has
// started. It does nothing if the server has ended.
func (p *process) Kill() { p.end(syscall.SIGKILL) }

func (p *process) end(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	if s == syscall.SIGKILL {
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
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s cannot be signalled: %v", filepath.Base(p.args[0]), err)
	}
	for _, child := range p.children() {
		syscall.Kill(child, s) // fails if it has ended
	}
}

// children returns the processes that the server has started.
func (p *process) children() (pids []int) {
	parent := strconv.Itoa(p.cmd.Process.Pid)
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

// ordinary is for programs that refuse to run as root. It returns the settings that make a
// program run as an ordinary user, or, if the test is not root, as the test's user. It also
// makes a directory for the program, which is removed when the test ends.
func ordinary(t testing.TB, name string) (dir string, attr *syscall.SysProcAttr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-") // short: the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() != 0 {
		return dir, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// prepare runs a program that makes a server's files.
func prepare(t testing.TB, attr *syscall.SysProcAttr, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = attr
	cmd.Dir = os.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(args[0]), err, out)
	}
}
