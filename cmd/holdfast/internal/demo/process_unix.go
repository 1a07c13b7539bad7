//go:build unix

package demo

import (
	"os"
	"syscall"
)

// canPause says whether a process can be stopped and continued here.
const canPause = true

// pause stops a process, as a full disk, a debugger or the migration of a virtual machine may do.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume continues a stopped process.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
