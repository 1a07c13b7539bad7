package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuOfSelf returns the processor time of this process.
func cpuOfSelf() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// load is the processor time of the machine, and of this process with all its descendants, so far,
// in ticks of the kernel, from Linux's /proc; zero on other systems.
type load struct{ busy, all, own int64 }

func loadNow() load {
	var l load
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line) {
		n, _ := strconv.ParseInt(field, 10, 64)
		switch i {
		case 4, 5: // idle, waiting for a disk
			l.all += n
		case 1, 2, 3, 6, 7, 8: // user, nice, system, interrupts, stolen
			l.all += n
			l.busy += n
		}
	}
	l.own = ticksOf([]int{os.Getpid()})
	return l
}

// foreign returns the share of the machine that other processes have used since before.
func foreign(before load) float64 {
	now := loadNow()
	if now.all == before.all {
		return 0
	}
	return max(0, float64((now.busy-before.busy)-(now.own-before.own))/float64(now.all-before.all))
}

// ticksOf adds up the ticks of the families of some processes, each with all its descendants,
// those that have ended included.
func ticksOf(roots []int) int64 {
	processes := processesNow()
	var sum int64
	for pid, p := range processes {
		for up, steps := pid, 0; up > 1 && steps < len(processes); steps++ {
			if slices.Contains(roots, up) {
				sum += p.ticks
				break
			}
			up = processes[up].parent
		}
	}
	return sum
}

// process is what Linux tells about one process.
type process struct {
	parent int
	ticks  int64 // its own, and those of its ended children
}

// ticksPerSecond is how many ticks of the kernel's accounts make a second of processor time.
const ticksPerSecond = 100

// processesNow returns all processes.
func processesNow() map[int]process {
	processes := map[int]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		// The program's name is in parentheses and may contain anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		var p process
		p.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[11:15] { // user, system, and those of its ended children
			n, _ := strconv.ParseInt(field, 10, 64)
			p.ticks += n
		}
		processes[pid] = p
	}
	return processes
}
