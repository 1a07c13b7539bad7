// Package child runs one command so that the command, and everything that it starts, can be killed
// in time.
//
// Three processes take part. The supervisor is the process that calls [Start]: it holds the lock.
// The guard is a second process of the same program. The command is the guard's child, in a process
// group of its own, which the guard leads. The guard kills the command and all its descendants when
//
//   - the supervisor has died, whatever killed it;
//   - on Linux, the last trust deadline that the supervisor has told it has passed: the supervisor
//     stands still, or it would have told a later one.
//
// The next holder of the lock may begin at that moment. The command runs beside it for no longer than it
// takes the guard to kill it.
//
// On Linux the guard adopts orphans of the command (PR_SET_CHILD_SUBREAPER), so it also finds
// processes that have left the group and the session. If the guard is killed, the kernel kills the
// command (PR_SET_PDEATHSIG), and the supervisor adopts and kills the rest.
//
// What survives:
//
//   - processes of other users, for example those that the command starts by sudo: neither the
//     guard nor the supervisor may signal them;
//   - on Linux, if the supervisor and the guard are both killed by SIGKILL, the command's
//     descendants, but not the command itself;
//   - if the supervisor and the guard are both stopped, as by a SIGSTOP to each or by a debugger, and the
//     command is not: all of it, beside the next holder of the lock, until the guard is continued. A
//     freezer that stops the command too does no harm;
//   - on other systems, and on Linux without /proc, processes that have left the group; on other systems
//     also the whole group, if the supervisor and the guard are both killed.
//
// The supervisor's side is child_unix.go, the guard's side guard_unix.go. The supervisor tells the guard
// trust deadlines, the guard reports back.
//
// Ctrl-Z does not stop the command: a job that stands still could not renew its lock.
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

	Until driver.Instant // the present trust deadline: see Child.Trust
}

// Event tells that the command was stopped, or that it has ended.
type Event struct {
	Stopped syscall.Signal // the signal that has stopped the command, or 0
	Code    int            // otherwise: the command's exit code, or 128+n if signal n killed it
}

// guardName is the guard's name in the list of processes, for ps, top and killall as well as in its
// arguments. A process whose arguments begin with it is a guard.
const guardName = "holdfast-guard"

// killed is the exit code of a command that was killed.
const killed = 128 + int(syscall.SIGKILL)
