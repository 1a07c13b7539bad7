package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// process is one entry of /proc.
type process struct {
	entry, parent int  // the numbers that /proc has for it and its parent
	dead          bool // a zombie
}

// proc is what /proc says of the processes.
type proc struct {
	list []process
	self int // our own entry; 0 if it cannot be told
	// foreign is not 0 where /proc shows the processes of a PID namespace around
	// ours, as in `unshare -pf` without --mount-proc. Its numbers are not those of
	// our system calls then: foreign is the place of ours among the numbers that
	// a process has.
	foreign int
}

// readProc lists all processes that we can see.
func readProc() proc {
	var p proc
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return p
	}
	if p.self, err = strconv.Atoi(link); err != nil {
		return p
	}
	if p.self != os.Getpid() {
		if p.foreign = len(namespaceIDs(p.self)) - 1; p.foreign < 1 {
			return proc{}
		}
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return proc{}
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		entry, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if one, ok := look(entry); ok {
			p.list = append(p.list, one)
		}
	}
	return p
}

// look returns one entry, unless it is gone.
func look(entry int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(entry) + "/stat")
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
	return process{entry, parent, state == 'Z' || state == 'X'}, err == nil
}

// namespaceIDs returns the process ids that an entry has, in the PID namespace of
// /proc first and in its own last: NSpid in proc_pid_status(5).
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

// pid returns the process id by which we can signal an entry that descends from
// us, or 0.
func (p *proc) pid(entry int) int {
	if p.foreign == 0 {
		return entry
	}
	if ids := namespaceIDs(entry); len(ids) > p.foreign {
		return ids[p.foreign]
	}
	return 0
}

// parent returns the parent of a process, or 0 if it cannot be told.
func parent(of int) int {
	if link, err := os.Readlink("/proc/self"); err != nil || link != strconv.Itoa(os.Getpid()) {
		return 0
	}
	p, _ := look(of)
	return p.parent
}

// children lists the children of this process.
func children() []int {
	p := readProc()
	var pids []int
	for _, one := range p.list {
		if one.parent == p.self {
			pids = append(pids, p.pid(one.entry))
		}
	}
	return pids
}

// killDescendants kills all that descends from this process, but for the subtrees
// spared, and returns how many were still there to kill.
func killDescendants(spared map[int]bool) int {
	p := readProc()
	found := map[int]bool{p.self: true}
	alive := 0
	for grown := true; grown; {
		grown = false
		for _, one := range p.list {
			if !found[one.parent] || found[one.entry] {
				continue
			}
			pid := p.pid(one.entry)
			if spared[pid] {
				continue
			}
			found[one.entry], grown = true, true
			if !one.dead && pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
				alive++
			}
		}
	}
	return alive
}
