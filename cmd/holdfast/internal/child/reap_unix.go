//go:build unix

package child

import (
	"slices"
	"sync"
	"syscall"
)

// reaper takes note of what becomes of this process's children: the guards, and
// the commands and orphans that it adopts when a guard ends. There is one of them,
// because the kernel tells each end once, to whoever asks first: after a leader's
// command has left something running, that and the next guard are children at the
// same time.
var reaper struct {
	sync.Mutex
	running bool
	waiting []*Child // those whose guard, or adopted command, has not ended
}

// reap begins to take note of what becomes of the guard.
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
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
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
			if c.reaped(pid, status) {
				reaper.Lock()
				reaper.waiting = slices.DeleteFunc(reaper.waiting, func(other *Child) bool { return other == c })
				reaper.Unlock()
			}
		}
	}
}

// reaped takes note of what has become of a process, and reports whether there is
// nothing more to come for this command.
func (c *Child) reaped(pid int, status syscall.WaitStatus) (done bool) {
	switch {
	case pid == c.guard && status.Stopped():
		// Somebody has stopped the whole group: the guard cannot say so.
		c.events <- Event{Stopped: status.StopSignal()}
	case pid == c.guard:
		c.guardEnded.Store(true)
		c.unguarded()
		if slices.Contains(children(), int(c.pid.Load())) {
			return c.ended.Load()
		}
		c.end(killed) // unless the guard has reported it
		return true
	case pid == int(c.pid.Load()) && !status.Stopped():
		c.unguarded()
		c.end(exitCode(status))
		return c.guardEnded.Load()
	}
	return false
}
