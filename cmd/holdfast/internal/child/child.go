// Package child runs one command with everything that it starts, so that all
// of it can be ended in time.
//
// The command runs in a process group of its own. The leader of that group is
// not the command but a guard: a second process of this program, which does
// nothing until the first is gone. It kills the group when
//
//   - the first process has died, whatever killed it;
//   - the trust deadline that it was told last has passed (on Linux): then the
//     first process stands still, or it would have told a later one.
//
// So neither kill -9 nor SIGSTOP of the first process leaves the command running
// beside the next holder of the lock for longer than it takes to kill it. On
// Linux the command is also killed by the kernel when the first process dies
// (PR_SET_PDEATHSIG), and the first process adopts what the command leaves
// behind (PR_SET_CHILD_SUBREAPER), so that it finds those who left the group.
//
// What it cannot kill is a process of another user: one that the command has
// started by sudo, for example.
package child

import (
	"syscall"

	"github.com/holdfastlock/holdfast/driver"
)

// Options say what to run.
type Options struct {
	Path string   // the program's file
	Args []string // its arguments, the name of the program first
	Env  []string // its environment, as in os.Environ

	Until driver.Instant // the trust deadline as it stands: see Child.Trust
}

// Event is something that has happened to the command.
type Event struct {
	Stopped syscall.Signal // not 0: this signal has stopped it
	Code    int            // otherwise it has ended: its exit code, or 128+n if signal n killed it
}

// guardName is the guard's name in the list of processes, by which the program
// knows that it is to be one.
const guardName = "holdfast-guard"
