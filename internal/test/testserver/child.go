package testserver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// partEnv is the environment variable with the part that a test's program plays instead of running tests.
const partEnv = "HOLDFAST_TEST_PART"

// Play ends the process if it is a [Child], after it has played its part with the arguments of the child. Call
// it first in TestMain.
func Play(parts map[string]func(args []string) error) {
	name := os.Getenv(partEnv)
	if name == "" {
		return
	}
	if err := parts[name](os.Args[1:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is a process that runs the test's own program to play a part. Its methods end the test on failure.
type Child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartChild starts the test's program once more. It is killed with the test.
func StartChild(t testing.TB, part string, args ...string) *Child {
	t.Helper()
	self, err := os.Executable()
	Must(t, err)
	return StartChildBy(t, exec.Command(self), part, args...)
}

// StartChildBy is StartChild by a command that runs the test's program.
func StartChildBy(t testing.TB, cmd *exec.Cmd, part string, args ...string) *Child {
	t.Helper()
	c := &Child{t: t, cmd: cmd}
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(os.Environ(), partEnv+"="+part)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	Must(t, err)
	out, err := cmd.StdoutPipe()
	Must(t, err)
	c.in, c.out = in, bufio.NewReader(out)
	Must(t, cmd.Start())
	t.Cleanup(c.Kill)
	return c
}

// Tell writes a line to the child.
func (c *Child) Tell(format string, args ...any) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	Must(c.t, err)
}

// Line reads the child's next line.
func (c *Child) Line() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Expect reads the child's next line, which must begin with want, and returns the rest of it.
func (c *Child) Expect(want string) string {
	c.t.Helper()
	line, err := c.Line()
	if err != nil || !strings.HasPrefix(line, want) {
		c.t.Fatalf("the child said %q (%v), not %q", line, err, want)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, want))
}

// Ask tells and expects.
func (c *Child) Ask(want, format string, args ...any) string {
	c.t.Helper()
	c.Tell(format, args...)
	return c.Expect(want)
}

// Close closes the child's standard input.
func (c *Child) Close() { c.in.Close() }

// End closes the child's standard input, and waits until the child has ended without an error.
func (c *Child) End() {
	c.t.Helper()
	c.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the child ended with %v", err)
	}
}

// Kill kills the child, unless it has ended, and waits until it is gone.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	c.cmd.Process.Wait()
}

// Signal sends the child a signal.
func (c *Child) Signal(s syscall.Signal) {
	c.t.Helper()
	Must(c.t, c.cmd.Process.Signal(s))
}

// Stop stops the child (SIGSTOP), and returns when it stands still.
func (c *Child) Stop() {
	c.t.Helper()
	c.Signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.t.Fatalf("a child did not stop: status %v, %v", status, err)
	}
}
