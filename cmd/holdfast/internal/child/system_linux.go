package child

import (
	"bytes"
	"os"
	"path/filepath"
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

// process is one entry of /proc.
type process struct {
	entry, parent int  // the numbers in /proc of the process and of its parent
	dead          bool // a zombie
}

// proc is a list of processes, as /proc shows them.
type proc struct {
	list []process
	self int // this process's entry
	// foreign is not 0 if /proc shows the processes of a PID namespace around this one, as in
	// `unshare -pf` without --mount-proc. Then the numbers in /proc are not the process ids that
	// system calls need. Each process has a list of process ids, one for each namespace that it is
	// in; foreign is the index of this namespace in those lists.
	foreign int
}

// openProc finds this process's entry in /proc.
func openProc() (p proc, ok bool) {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return p, false
	}
	if p.self, err = strconv.Atoi(link); err != nil {
		return p, false
	}
	if p.self != os.Getpid() {
		p.foreign = len(namespaceIDs(p.self)) - 1
	}
	return p, p.foreign >= 0
}

// read lists all processes in /proc.
func (p *proc) read() {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		entry, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if one, ok := readEntry(entry); ok {
			p.list = append(p.list, one)
		}
	}
}

// readEntry returns one entry, unless the process is gone.
func readEntry(entry int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(entry) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The second field is the program's name in parentheses, which may contain any characters:
	// see proc_pid_stat(5).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	state := fields[0][0]
	return process{entry, parent, state == 'Z' || state == 'X'}, err == nil
}

// namespaceIDs returns the process ids of an entry, from the PID namespace of /proc to the
// process's own: NSpid in proc_pid_status(5).
func namespaceIDs(entry int) []int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(entry) + "/status")
	if err != nil {
		return nil
	}
	_, line, _ := bytes.Cut(status, []byte("\nNSpid:"))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	var ids []int
	for _, field := range bytes.Fields(line) {
		id, err := strconv.Atoi(string(field))
		if err != nil {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// pid returns the process id for system calls of an entry that descends from this process, or 0.
func (p *proc) pid(entry int) int {
	if p.foreign == 0 {
		return entry
	}
	if ids := namespaceIDs(entry); len(ids) > p.foreign {
		return ids[p.foreign]
	}
	return 0
}

// childrenOf lists the children of an entry. It is fast, but some may be missing while others end:
// see proc_pid_task_tid_children(5).
func childrenOf(entry int) []int {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(entry) + "/task/*/children")
	var entries []int
	for _, file := range threads {
		text, _ := os.ReadFile(file)
		for _, field := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				entries = append(entries, child)
			}
		}
	}
	return entries
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

// children lists the children of this process. It reads all of /proc only if there are any: the cost of a
// hundred runs that are started together would grow with the square of their number.
func children() []int {
	if peek(unix.P_ALL, 0) == unix.ECHILD {
		return nil
	}
	p, ok := openProc()
	if !ok {
		return nil
	}
	p.read()
	var pids []int
	for _, one := range p.list {
		if one.parent == p.self {
			pids = append(pids, p.pid(one.entry))
		}
	}
	return pids
}

// killDescendants kills all descendants of this process, except for the subtrees spared, and returns
// how many were alive. Time is short at the first call, and a host may have thousands of processes.
// So it goes from child to child at first, and reads all of /proc only when it has found no process
// to kill in that way.
func killDescendants(spared map[int]bool) int {
	p, ok := openProc()
	if !ok {
		return 0
	}
	if n := p.killEach(childrenOf(p.self), spared); n > 0 {
		return n
	}
	p.read()
	found := map[int]bool{p.self: true}
	alive := 0
	for grown := true; grown; {
		grown = false
		for _, one := range p.list {
			if found[one.parent] && !found[one.entry] && !spared[p.pid(one.entry)] {
				found[one.entry], grown = true, true
				alive += p.kill(one)
			}
		}
	}
	return alive
}

// killEach kills the entries and their descendants, from child to child. A parent is killed before
// its children, so that it does not start more of them.
func (p *proc) killEach(entries []int, spared map[int]bool) (alive int) {
	for _, entry := range entries {
		one, ok := readEntry(entry)
		if !ok || spared[p.pid(entry)] {
			continue
		}
		below := childrenOf(entry)
		alive += p.kill(one) + p.killEach(below, spared)
	}
	return alive
}

// kill kills a process and returns 1 if it was alive.
func (p *proc) kill(one process) int {
	pid := p.pid(one.entry)
	if one.dead || pid <= 0 {
		return 0
	}
	syscall.Kill(pid, syscall.SIGKILL)
	return 1
}
