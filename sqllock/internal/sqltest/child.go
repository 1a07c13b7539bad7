package sqltest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// part is the environment variable with the part that a test's program is to play instead of
// running tests.
const part = "HOLDFAST_SQLTEST_PART"

// Play ends the process if it is one that StartChild has started, after it has
// played its part. Call it first in TestMain.
func Play(parts map[string]func(args []string) error) {
	name := os.Getenv(part)
	if name == "" {
		return
	}
	if err := parts[name](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is another process of the test's program. Its methods end the test on
// failure.
type Child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	ended bool
}

// StartChild starts the test's program once more, to play a part. It ends with the
// test.
func StartChild(t *testing.T, name string, args ...string) *Child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &Child{t: t, cmd: exec.Command(program, args...)}
	c.cmd.Env = append(os.Environ(), part+"="+name)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !c.ended {
			c.Kill()
		}
	})
	return c
}

// Expect reads the child's next line.
func (c *Child) Expect(line string) {
	c.t.Helper()
	if got := c.Line(); got != line {
		c.t.Fatalf("the child says %q, not %q", got, line)
	}
}

// Line returns the child's next line, "" if there is none.
func (c *Child) Line() string {
	c.lines.Scan()
	return strings.TrimSpace(c.lines.Text())
}

// Wait waits until the child has ended without an error.
func (c *Child) Wait() {
	c.t.Helper()
	c.ended = true
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the child: %v", err)
	}
}

// Kill ends the child at once.
func (c *Child) Kill() {
	c.ended = true
	c.cmd.Process.Kill() // fails if it has ended
	c.cmd.Wait()         // says that it was killed
}

// Stop stops the child until Continue.
func (c *Child) Stop() { c.signal(syscall.SIGSTOP) }

// Continue lets the child go on.
func (c *Child) Continue() { c.signal(syscall.SIGCONT) }

func (c *Child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("the child cannot be signalled: %v", err)
	}
}
