package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfastlock/holdfast/driver"
)

// joinGroup makes a new process a member of the group before its first instruction, and has the
// kernel kill it when its parent dies.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// showName gives this process a name for ps, of up to 15 bytes: it was started by way of /proc, as "exe". That is
// the name of the main thread, on which init runs.
func showName(name string) {
	if text, err := unix.BytePtrFromString(name); err == nil {
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

// adoptOrphans makes this process the parent of its descendants' orphans, so that it finds them in
// whatever group and session they are. If the kernel refuses, the group can still be killed.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// watch returns when the group must be killed, and says why. Instants are readings of
// CLOCK_BOOTTIME, so the supervisor's instants are valid here too.
func (g *guard) watch() string {
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		timer = -1 // poll ignores it: then only the supervisor's death counts
	}
	for {
		if g.until != 0 {
			at := unix.NsecToTimespec(int64(g.until))
			unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: at}, nil)
		}
		fds := []unix.PollFd{{Fd: int32(g.orders), Events: unix.POLLIN}, {Fd: int32(timer), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			continue // EINTR
		}
		switch {
		case fds[0].Revents != 0:
			// A new deadline is read before the old one is checked: after a stop of the group both
			// may be waiting.
			if !g.read() {
				return supervisorGone
			}
		case g.until != 0 && driver.HostClock.Now() >= g.until:
			return "holdfast run has stood still until its lock ran out"
		}
	}
}

// process is what /proc shows of a process.
type process struct {
	pid, parent int
	dead        bool // a zombie
}

// processes lists all processes, or none where there is no /proc of this PID namespace, as in `unshare -pf` without
// --mount-proc: the numbers there are not those of system calls.
func processes() (list []process) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it is gone
		}
		// The second field is the program's name in parentheses, which may contain any characters:
		// see proc_pid_stat(5).
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			list = append(list, process{pid, parent, bytes.ContainsAny(fields[0], "ZX")})
		}
	}
	return list
}

// isChild reports whether a process is a child of this process, alive or not yet waited for.
func isChild(pid int) bool { return pid > 0 && peek(unix.P_PID, pid) == nil }

// peek returns ECHILD if this process has no such child. It waits for nothing, and takes no news from
// the reaper.
func peek(kind, id int) error {
	for {
		err := unix.Waitid(kind, id, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// children lists the children of this process. It reads /proc only if there are any: the cost of a hundred runs that
// are started together would grow with the square of their number.
func children() (pids []int) {
	if peek(unix.P_ALL, 0) == unix.ECHILD {
		return nil
	}
	for _, one := range processes() {
		if one.parent == os.Getpid() {
			pids = append(pids, one.pid)
		}
	}
	return pids
}

// killDescendants kills all descendants of this process, except for the subtrees spared, and returns how many were
// alive. A parent is killed before its children, so that it does not start more of them.
func killDescendants(spared map[int]bool) (alive int) {
	list, found := processes(), map[int]bool{os.Getpid(): true}
	for grown := true; grown; {
		grown = false
		for _, one := range list {
			if !found[one.parent] || found[one.pid] || spared[one.pid] {
				continue
			}
			found[one.pid], grown = true, true
			if !one.dead {
				syscall.Kill(one.pid, syscall.SIGKILL)
				alive++
			}
		}
	}
	return alive
}
