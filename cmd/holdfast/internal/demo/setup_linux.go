package demo

import (
	"os/exec"
	"syscall"
)

// setUp keeps a process out of the terminal's foreground, where Ctrl-C would reach it too, and has
// the kernel kill it when its parent dies, even while it is stopped.
func setUp(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
