package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RedisOptions configure a Redis server. The zero value keeps nothing on disk.
type RedisOptions struct {
	AOF   bool     // append every write to a file, and sync it, before it is answered
	Clock bool     // with a wall clock of its own; needs gcc too
	Args  []string // more arguments, such as "--maxmemory", "3mb"
}

// Redis is a private Redis server of one test, with a directory of its own. Its
// methods end the test on failure; call them on the test's own goroutine, one at
// a time.
type Redis struct {
	Addr   string // on the loopback interface, host:port; the same after Start
	Socket string // the path of its unix socket
	Clock  *Clock // its wall clock, if it has one of its own
	t      testing.TB
	args   []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// StartRedis starts a server, which ends with the test. It needs the package
// redis-server: see [Need].
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	program := Need(t, "redis-server", "redis-server")
	dir, err := os.MkdirTemp("", "holdfast-redis-") // short: the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &Redis{t: t, Socket: filepath.Join(dir, "redis.sock")}
	t.Cleanup(r.Kill)
	if o.Clock {
		r.Clock = newClock(t, dir)
	}
	const attempts = 5 // another program may take the port before the server does
	for i := range attempts {
		r.Addr = freeAddr(t)
		_, port, _ := net.SplitHostPort(r.Addr)
		r.args = append([]string{
			program, "--bind", "127.0.0.1", "--port", port, "--unixsocket", r.Socket, "--dir", dir,
			"--daemonize", "no", "--save", "", "--appendonly", yesNo(o.AOF), "--appendfsync", "always",
		}, o.Args...)
		if err = r.start(); err == nil {
			return r
		}
		t.Logf("redis-server, attempt %d: %v", i+1, err)
	}
	t.Fatalf("redis-server did not start: %v", err)
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// freeAddr returns an address on the loopback interface on which nobody
// listened a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the process and waits until it says that it serves.
func (r *Redis) start() error {
	cmd := exec.Command(r.args[0], r.args[1:]...)
	if r.Clock != nil {
		cmd.Env = r.Clock.environ()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	serves, exited := make(chan error, 1), make(chan struct{})
	go r.watch(cmd, out, serves, exited)
	r.cmd, r.exited = cmd, exited
	select {
	case err := <-serves:
		return err
	case <-time.After(30 * time.Second):
		r.Kill()
		return errors.New("did not serve within 30 s")
	}
}

// watch reads the server's log until it ends. It tells serves that it serves, or
// why it ended before.
func (r *Redis) watch(cmd *exec.Cmd, out io.Reader, serves chan<- error, exited chan<- struct{}) {
	defer close(exited)
	var log strings.Builder
	told := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if !told && strings.Contains(lines.Text(), "Ready to accept connections") {
			serves <- nil
			told = true
		}
		if !told && log.Len() < 4096 {
			fmt.Fprintln(&log, lines.Text())
		}
	}
	if err := cmd.Wait(); !told {
		serves <- fmt.Errorf("%w\n%s", errors.Join(errors.New("ended"), err), log.String())
	}
}

// Start starts the server again after Stop or Kill, at the same address, with
// the data that is on its disk.
func (r *Redis) Start() {
	r.t.Helper()
	if err := r.start(); err != nil {
		r.t.Fatalf("redis-server did not start again: %v", err)
	}
}

// Stop ends the server as an operator would.
func (r *Redis) Stop() { r.end(syscall.SIGTERM) }

// Kill ends the server at once (SIGKILL), paused or not. On one that has ended
// it does nothing.
func (r *Redis) Kill() { r.end(syscall.SIGKILL) }

func (r *Redis) end(s syscall.Signal) {
	if r.cmd == nil {
		return
	}
	r.cmd.Process.Signal(s) // fails if it has ended
	<-r.exited
}

// Pause stops the server (SIGSTOP): it keeps its connections and answers
// nothing, while its clock runs on. Resume lets it go on.
func (r *Redis) Pause() { r.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on (SIGCONT).
func (r *Redis) Resume() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatalf("redis-server cannot be signalled: %v", err)
	}
}
