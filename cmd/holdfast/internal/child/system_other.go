//go:build unix && !linux

package child

import "syscall"

// joinGroup makes a process a member of the group from before its first
// instruction.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// adoptOrphans does nothing: only Linux lets a process adopt orphans.
func adoptOrphans() {}

// children knows of none: it is for the sake of killDescendants.
func children() []int { return nil }

// killDescendants does nothing: only the group is killed here.
func killDescendants(map[int]bool) int { return 0 }

// parent cannot tell here.
func parent(int) int { return 0 }
