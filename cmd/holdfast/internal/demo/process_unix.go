//go:build unix

package demo

import (
	"os"
	"syscall"
)

// canPause says whether a process can be stopped and continued here.
const canPause = true

// pause stops a process, as a full disk, a debugger or a virtual machine that
// is moved does.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume continues it.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
