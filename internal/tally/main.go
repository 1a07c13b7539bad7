// Command tally runs go test with its arguments, and sums up.
//
// It shows each package when that ends, with the whole output of the tests in it that failed, and
// from time to time what is still running. In the end it shows the packages that took longest, and
// in the last line how many tests passed, failed and were skipped. It counts tests that have no
// subtests, and of the others those that failed by themselves. What fails without a test counts
// as one: a package that does not build, a program that ends in the middle, go test itself.
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

// quiet is for how long nothing is shown before it is said what is running.
const quiet = 30 * time.Second

func main() {
	// An interrupt is for go test, which gets it too: what it says then is summed up.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	out := bufio.NewWriter(os.Stdout)
	ok := run(append([]string{"go", "test", "-json"}, os.Args[1:]...), os.Stderr, out, quiet)
	out.Flush()
	if !ok {
		os.Exit(1)
	}
}

// run runs a program that writes what go test -json writes, shows what there is to show, and
// reports whether all is well.
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
