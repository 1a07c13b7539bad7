package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// joinGroup makes a process a member of the group from before its first
// instruction, and has it killed when its parent dies.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of what its descendants leave behind,
// so that it finds them wherever they have gone. If the kernel refuses, the group is
// still there.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
