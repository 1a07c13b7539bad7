package testserver

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// FillDisk makes the server's disk full, until the server's next start: it may not make a file
// larger than a byte (RLIMIT_FSIZE, which needs no mount and no rights), so that every write to its log
// fails, perhaps after a part of it. What is written stays.
func (p *process) FillDisk() {
	p.t.Helper()
	if !p.Running() {
		return
	}
	prlimit := Need(p.t, "prlimit", "util-linux")
	if out, err := exec.Command(prlimit, "--pid", strconv.Itoa(p.cmd.Process.Pid), "--fsize=1:").CombinedOutput(); err != nil {
		p.t.Fatalf("limiting the files of a server: %v\n%s", err, out)
	}
}

// SlowDisk makes each write-through to the server's disk take longer (strace), until the function that it
// returns is called. All that the server does takes longer meanwhile.
func (p *process) SlowDisk(by time.Duration) (end func()) {
	p.t.Helper()
	strace := Need(p.t, "strace", "strace")
	cmd := exec.Command(strace, "-f", "-q", "-p", strconv.Itoa(p.cmd.Process.Pid), "-o", os.DevNull, "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:delay_enter="+strconv.FormatInt(by.Microseconds(), 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		cmd.Process.Signal(os.Interrupt) // it lets go of the server
		cmd.Wait()                       // ends by the signal
	}
}
