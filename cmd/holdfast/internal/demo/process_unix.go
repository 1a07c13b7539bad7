//go:build unix

package demo

import (
	"os"
	"os/exec"
	"syscall"
)

// pause stops a process, as a full disk, a debugger or the migration of a virtual machine may do.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// setUp gives a process a group of its own, which Ctrl-C does not reach. If the demonstration is killed, the
// kernel sends SIGHUP and SIGCONT to the group of a stopped process, because nobody could continue it.
func setUp(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
