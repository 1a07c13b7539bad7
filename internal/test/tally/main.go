// Command tally runs go test with its arguments, and sums up its output.
//
// It prints a line for each package that has ended, with the whole output of the tests that
// failed, and from time to time which packages are still running. At the end it prints the
// packages that took longest, and in the last line how many tests passed, failed and were
// skipped. A test without subtests counts; one with subtests counts only if it failed by itself.
// A failure without a test counts as one test: a package that does not build, a test program
// that ends too early, go test itself.
//
// Its exit code is 0 only if go test's is, and nothing failed.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// quiet is after how much time without output tally prints which packages are running.
const quiet = 30 * time.Second

func main() {
	// An interrupt ends go test, which gets it too; its last output is summed up.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	out := bufio.NewWriter(os.Stdout)
	ok := run(append([]string{"go", "test", "-json"}, os.Args[1:]...), os.Stderr, out, quiet)
	out.Flush()
	if !ok {
		os.Exit(1)
	}
}

// run runs a program that writes the output of go test -json, prints the summary, and reports
// whether nothing failed.
func run(args []string, stderr io.Writer, out *bufio.Writer, quiet time.Duration) bool {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(out, "%v\n0 passed, 1 failed, 0 skipped\n", err)
		return false
	}
	t := newTally(out)
	shown := false
	ticks := time.Tick(quiet)
	for lines := read(stdout); lines != nil; {
		select {
		case line, more := <-lines:
			if !more {
				lines = nil
				break
			}
			t.line(line)
			shown = shown || out.Buffered() > 0
		case now := <-ticks:
			if !shown {
				t.stillRunning(now)
			}
			shown = false
		}
		out.Flush()
	}
	err = cmd.Wait()
	t.end(err)
	return err == nil && t.failed == 0
}

// read returns the lines of a reader, of any length, each with its end.
func read(r io.Reader) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					lines <- fmt.Appendf(nil, "%v\n", err)
				}
				return
			}
		}
	}()
	return lines
}
