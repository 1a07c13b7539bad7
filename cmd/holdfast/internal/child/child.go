// Package child runs one command with everything that it starts, so that all
// of it can be ended in time.
//
// The command runs in a process group of its own. Its parent, and the leader of
// that group, is a guard: a second process of this program. The guard kills the
// command and all that descends from it when
//
//   - the first process has died, whatever killed it;
//   - the trust deadline that it was told last has passed (on Linux): then the
//     first process stands still, or it would have told a later one.
//
// So neither kill -9 nor SIGSTOP of the first process leaves the command running
// beside the next holder of the lock for longer than it takes to kill it.
//
// On Linux the guard adopts what the command leaves behind
// (PR_SET_CHILD_SUBREAPER), so it also finds processes that have left the group
// and the session. The kernel kills the command when the guard dies
// (PR_SET_PDEATHSIG), and the first process adopts what the guard leaves behind.
//
// What survives:
//
//   - processes of other users, for example those that the command starts by
//     sudo: nobody here may signal them;
//   - on Linux, if the first process and the guard are both killed by SIGKILL,
//     the command's descendants, but not the command itself;
//   - on other systems, what has left the group; and the whole group, if the first
//     process and the guard are both killed.
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

// killed is the exit code of a command that was killed.
const killed = 128 + int(syscall.SIGKILL)
