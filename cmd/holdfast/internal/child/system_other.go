//go:build unix && !linux

package child

import "syscall"

// joinGroup makes a new process a member of the group before its first instruction.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// showName does nothing: the arguments show the name.
func showName(string) {}

// adoptOrphans does nothing: only Linux lets a process adopt orphans.
func adoptOrphans() {}

// children returns nothing: only killDescendants needs it.
func children() []int { return nil }

// isChild returns false: only Linux lets a process adopt orphans, and so the command.
func isChild(int) bool { return false }

// killDescendants does nothing: only the group is killed here.
func killDescendants(map[int]bool) int { return 0 }

// watch returns when the group must be killed, and says why. Here the supervisor's instants mean
// nothing to another process, so only its death counts.
func (g *guard) watch() string {
	for g.read() {
	}
	return supervisorGone
}
