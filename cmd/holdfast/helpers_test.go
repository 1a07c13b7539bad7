//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// helpers are programs for holdfast to run: the test binary under these names.
var helpers = map[string]func(args []string){
	"stamp":   func(args []string) { stamp(args[0]) },
	"tree":    func(args []string) { tree(args[0]) },
	"once":    func(args []string) { writeStamp(args[0]); time.Sleep(50 * time.Millisecond) },
	"signals": func([]string) { signals() },
	"until":   func(args []string) { until(args[0]) },
}

// writeStamp writes the time into a file. The clock is the host's, so that the
// times of several processes can be compared.
func writeStamp(file string) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	stampInto(f)
}

func stampInto(f *os.File) {
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(driver.HostClock.Now())), 0); err != nil {
		panic(err)
	}
}

// stamped is the last time in a file, or 0.
func stamped(file string) driver.Instant {
	b, err := os.ReadFile(file)
	if err != nil || len(b) < 8 {
		return 0
	}
	return driver.Instant(binary.LittleEndian.Uint64(b))
}

// stamp writes the time into a file again and again. It catches signals and goes on; it records the time
// of the first SIGTERM.
func stamp(file string) {
	term := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		writeStamp(file + ".term")
	}()
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	for {
		stampInto(f)
		time.Sleep(time.Millisecond / 2)
	}
}

// tree is stamp with a child, and with a daemon: a process that has left its
// group and session, and whose parent is gone.
func tree(file string) {
	self := os.Args[0]
	if err := exec.Command(filepath.Join(filepath.Dir(self), "stamp"), file+".child").Start(); err != nil {
		panic(err)
	}
	daemon := exec.Command("sh", "-c", `"$0" "$1" & exit 0`, filepath.Join(filepath.Dir(self), "stamp"), file+".daemon")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Run(); err != nil {
		panic(err)
	}
	stamp(file)
}

// treeFiles are the files of tree.
func treeFiles(file string) []string { return []string{file, file + ".child", file + ".daemon"} }

// awaitStamps waits until all of them have begun.
func awaitStamps(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		await(t, "a stamp in "+file, func() bool { return stamped(file) != 0 })
	}
}

// goneBefore fails the test if one of them went on after another had begun.
func goneBefore(t *testing.T, other string, files ...string) {
	t.Helper()
	began := stamped(other)
	if began == 0 {
		t.Fatalf("%s has no stamp", other)
	}
	for _, file := range files {
		last := stamped(file)
		if last == 0 {
			t.Errorf("%s has no stamp", file)
		}
		if late := last.Sub(began); late >= 0 {
			t.Errorf("%s was still running %v after another began", filepath.Base(file), late)
		}
	}
}

// signals prints the signals that come, and ends with exit code 5 at the second
// SIGTERM.
func signals() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT)
	fmt.Println("up")
	terms := 0
	for s := range c {
		fmt.Println(s)
		if s == syscall.SIGTERM {
			if terms++; terms == 2 {
				os.Exit(5)
			}
		}
	}
}

// until ends when a file is there.
func until(file string) {
	fmt.Println("up")
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
