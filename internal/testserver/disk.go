package testserver

import (
	"os/exec"
	"strconv"
)

// FillDisk makes the server's disk full, until MakeRoom or the server's next start: it may not make a file
// larger than a byte (RLIMIT_FSIZE, which needs no mount and no rights), so that every write to its log
// fails, perhaps after a part of it. What is written stays.
func (p *process) FillDisk() { p.t.Helper(); p.limitFiles("1") }

// MakeRoom ends what FillDisk does.
func (p *process) MakeRoom() { p.t.Helper(); p.limitFiles("unlimited") }

func (p *process) limitFiles(bytes string) {
	p.t.Helper()
	if !p.Running() {
		return
	}
	prlimit := Need(p.t, "prlimit", "util-linux")
	// The hard limit stays, so that the soft one can be raised again.
	if out, err := exec.Command(prlimit, "--pid", strconv.Itoa(p.cmd.Process.Pid), "--fsize="+bytes+":").CombinedOutput(); err != nil {
		p.t.Fatalf("limiting the files of a server: %v\n%s", err, out)
	}
}
