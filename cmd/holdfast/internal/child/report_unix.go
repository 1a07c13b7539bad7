//go:build unix

package child

import (
	"fmt"
	"io"
	"syscall"
)

// report is one line that the guard writes to the supervisor.
type report struct {
	what string
	n    int
}

// The reports, in the order in which they come.
const (
	guardReady     = "ready"   // the guard catches all signals now
	commandStarted = "started" // n is the command's process id
	commandRefused = "refused" // instead of started: n is the errno
	commandStopped = "stopped" // n is the signal
	commandEnded   = "ended"   // n is the exit code
)

// readReport returns the next report; io.EOF means that the guard has died.
func readReport(r io.Reader) (report, error) {
	var got report
	_, err := fmt.Fscanln(r, &got.what, &got.n)
	return got, err
}

// write writes the report in one step, so that it arrives whole or not at all.
func (r report) write(fd int) { syscall.Write(fd, fmt.Appendln(nil, r.what, r.n)) }

// exitCode returns the exit code that a shell would show for a process that has ended.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
