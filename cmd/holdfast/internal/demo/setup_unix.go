//go:build unix && !linux

package demo

import (
	"os/exec"
	"syscall"
)

// setUp keeps a process out of the terminal's foreground, where Ctrl-C would reach it too.
func setUp(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
