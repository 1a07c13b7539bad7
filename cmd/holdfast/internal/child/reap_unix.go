//go:build unix

package child

import (
	"slices"
	"sync"
	"syscall"
)

// reaper waits for this process's children: the guards, and the commands and orphans that the
// process adopts when a guard ends. There is one reaper, because the kernel reports the end of each
// child only once. Suppose that `holdfast elect` runs a command that leaves a daemon behind, and
// then the next command: the daemon and the next guard are children at the same time.
var reaper struct {
	sync.Mutex
	running bool
	waiting []*Child // those whose guard, or adopted command, has not ended
}

// reap has the reaper wait for the guard.
func (c *Child) reap() {
	reaper.Lock()
	defer reaper.Unlock()
	reaper.waiting = append(reaper.waiting, c)
	if !reaper.running {
		reaper.running = true
		go reapAll()
	}
}

func reapAll() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		reaper.Lock()
		if err != nil && err != syscall.EINTR && len(reaper.waiting) == 0 {
			reaper.running = false
			reaper.Unlock()
			return // no children any more
		}
		waiting := slices.Clone(reaper.waiting)
		reaper.Unlock()
		if err != nil {
			continue
		}
		for _, c := range waiting {
			if c.noteEnd(pid, status) {
				reaper.Lock()
				reaper.waiting = slices.DeleteFunc(reaper.waiting, func(other *Child) bool { return other == c })
				reaper.Unlock()
			}
		}
	}
}

// noteEnd handles the end of a child process, which may be another command's. It returns true when both
// the guard and the command have ended.
func (c *Child) noteEnd(pid int, status syscall.WaitStatus) (done bool) {
	switch {
	case pid == c.guard:
		c.guardEnded.Store(true)
		c.killUnguarded()
		if isChild(int(c.pid.Load())) {
			return c.ended.Load()
		}
		c.reportEnd(killed) // does nothing if the guard has reported the end
		return true
	case pid == int(c.pid.Load()):
		c.killUnguarded()
		c.reportEnd(exitCode(status))
		return c.guardEnded.Load()
	}
	return false
}
