package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// The environment variables that make the test's program a child: the URL of its store, and the TTL of its hold.
const childURL, childTTL = "HOLDFAST_TEST_FAULTS", "HOLDFAST_TEST_FAULTS_TTL"

// Main runs the tests. If a test has started the test's program again, as a child that it can kill and stop, Main
// runs that child instead. TestMain of a package that calls [Run] MUST call it.
func Main(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := obey(url, os.Getenv(childTTL)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// obey runs a child. It acquires the lock "x" and watches its lease, and says "has it", or "had it" if the lease is
// lost when it is watched first. When its standard input ends, it releases the lease, and writes the hold as JSON.
func obey(url, ttl string) error {
	c, err := holdfast.Open(context.Background(), url)
	if err != nil {
		return err
	}
	long, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	lease, err := c.Mutex("x", &holdfast.Options{TTL: long}).Acquire(context.Background())
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	answered := sync.Once{}
	hold := Watch(lease, stop, func() { answered.Do(func() { fmt.Println("has it") }) })
	answered.Do(func() { fmt.Println("had it and", hold.Lost) })
	<-stop
	hold.Who = fmt.Sprintf("process %d", os.Getpid())
	if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(hold)
}

// child is a process that acquires the lock "x".
type child struct {
	*scene
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// child starts a process, which is killed when the test ends.
func (s *scene) child(ttl time.Duration) *child {
	s.Helper()
	self, err := os.Executable()
	s.must(err)
	c := &child{scene: s, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childURL+"="+s.URL(s.addr), childTTL+"="+ttl.String())
	c.cmd.Stderr = os.Stderr
	c.in, err = c.cmd.StdinPipe()
	s.must(err)
	out, err := c.cmd.StdoutPipe()
	s.must(err)
	c.out = bufio.NewReader(out)
	s.must(c.cmd.Start())
	s.Cleanup(c.kill)
	return c
}

// kill kills the process and waits until it is gone.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Process.Wait() // the second time it fails
}

func (c *child) signal(s syscall.Signal) {
	c.Helper()
	c.must(c.cmd.Process.Signal(s))
}

// stop stops the process, and returns when it stands still.
func (c *child) stop() {
	c.Helper()
	c.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.Fatalf("a child did not stop: status %v, %v", status, err)
	}
}

// hasIt waits until the child has the lock.
func (c *child) hasIt(within time.Duration, why string) {
	c.Helper()
	late := time.AfterFunc(within, c.kill)
	line, err := c.out.ReadString('\n')
	if !late.Stop() || err != nil || line != "has it\n" {
		c.Fatalf("%s: a child said %q (%v), or nothing within %v", why, line, err, within)
	}
}

// gives lets the child release its lease, and returns the hold.
func (c *child) gives() (h Hold) {
	c.Helper()
	c.must(c.in.Close())
	line, err := c.out.ReadString('\n')
	if err != nil || json.Unmarshal([]byte(line), &h) != nil {
		c.Fatalf("a child said %q (%v), not its hold", line, err)
	}
	return h
}
