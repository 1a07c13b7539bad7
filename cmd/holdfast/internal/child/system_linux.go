package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// joinGroup makes a process a member of the group from before its first
// instruction, and has it killed when we die.
func joinGroup(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes what the command leaves behind our children, so that we
// find it wherever it has gone. If the kernel refuses, the group is still there.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// process is one line of the list of processes.
type process struct {
	pid, parent int
	dead        bool // a zombie
}

// processes lists all processes that we can see.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := look(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// look returns one process, unless it is gone.
func look(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The second field is the program's name in parentheses, and may hold
	// anything: see proc_pid_stat(5).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	state := fields[0][0]
	return process{pid, parent, state == 'Z' || state == 'X'}, err == nil
}

// parent returns the parent of a process, or 0 if it cannot be told.
func parent(of int) int {
	p, _ := look(of)
	return p.parent
}

// children lists the children of a process.
func children(of int) []int {
	var pids []int
	for _, p := range processes() {
		if p.parent == of {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// killDescendants kills all that descends from a process, but for the subtrees
// spared, and returns how many were still there to kill.
func killDescendants(of int, spared map[int]bool) int {
	list := processes()
	found := map[int]bool{of: true}
	for grown := true; grown; {
		grown = false
		for _, p := range list {
			if found[p.parent] && !found[p.pid] && !spared[p.pid] {
				found[p.pid], grown = true, true
			}
		}
	}
	alive := 0
	for _, p := range list {
		if found[p.pid] && p.pid != of && !p.dead {
			syscall.Kill(p.pid, syscall.SIGKILL)
			alive++
		}
	}
	return alive
}
