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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
)

// childEnv is the environment variable with the URL of a child's store.
const childEnv = "HOLDFAST_TEST_FAULTS"

// Main runs the tests. If a test has started the test's program again, as a child that it can
// kill and stop, Main runs that child instead. TestMain of a package that calls [Run] MUST
// call it.
func Main(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := obey(url); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// obey runs a child. It reads commands from its standard input, one a line, and answers on
// its standard output:
//
//	take NAME TTL   acquires a lock and watches its lease from then on. Answers "has it", or
//	                "had it" if the lease is lost when it is watched first.
//	give            releases the lease, and answers with the hold as JSON
//	end             ends the process without a release
func obey(url string) error {
	c, err := holdfast.Open(context.Background(), url)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var stop chan struct{}
	var watched sync.WaitGroup
	var lease *holdfast.Lease
	var hold Hold
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "take":
			ttl, err := time.ParseDuration(words[2])
			if err != nil {
				return err
			}
			if lease, err = c.Mutex(words[1], &holdfast.Options{TTL: ttl}).Acquire(context.Background()); err != nil {
				return err
			}
			stop = make(chan struct{})
			answered := sync.Once{}
			watched.Go(func() {
				hold = Watch(lease, stop, func() { answered.Do(func() { fmt.Println("has it") }) })
				answered.Do(func() { fmt.Println("had it and", hold.Lost) })
			})
		case "give":
			close(stop)
			watched.Wait()
			hold.Who = fmt.Sprintf("process %d", os.Getpid())
			if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
				return err
			}
			if err := json.NewEncoder(os.Stdout).Encode(hold); err != nil {
				return err
			}
		case "end":
			os.Exit(0)
		}
	}
	return nil
}

// child is a process that has a client.
type child struct {
	*scene
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// child starts a process, which is killed when the test ends.
func (s *scene) child() *child {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	c := &child{scene: s, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+s.URL(s.addr))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.kill)
	c.hears("ready")
	return c
}

// kill kills the process and waits until it is gone.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Process.Wait() // the second time it fails
}

func (c *child) signal(s syscall.Signal) {
	c.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.Fatal(err)
	}
}

// stop stops the process, and returns when it stands still. On a busy machine the signal
// takes a while, and the process runs on until then.
func (c *child) stop() {
	c.Helper()
	c.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.Fatalf("a child did not stop: status %v, %v", status, err)
	}
}

// says sends a command.
func (c *child) says(format string, args ...any) {
	c.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.Fatal(err)
	}
}

// hears reads a line, which must begin with want, and returns it.
func (c *child) hears(want string) string {
	c.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, want) {
		c.Fatalf("a child said %q (%v), not %q", line, err, want)
	}
	return line
}

// hasIt waits until the child has the lock that it was told to take.
func (c *child) hasIt(within time.Duration, why string) {
	c.Helper()
	late := time.AfterFunc(within, c.kill)
	line, err := c.out.ReadString('\n')
	if !late.Stop() {
		c.Fatalf("%s: not within %v", why, within)
	}
	if err != nil || line != "has it\n" {
		c.Fatalf("%s: a child said %q (%v)", why, line, err)
	}
}

// gives lets the child release its lease, and returns the hold.
func (c *child) gives() Hold {
	c.Helper()
	c.says("give")
	var h Hold
	if err := json.Unmarshal([]byte(c.hears("{")), &h); err != nil {
		c.Fatal(err)
	}
	return h
}
