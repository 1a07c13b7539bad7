//go:build soak && linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShortWaitOnBusyStore: a store that answers later than the time of -w is not taken for one that does
// not work. Here its lock file is in another's hands for a while.
func TestShortWaitOnBusyStore(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	for _, name := range []string{"x", "free"} {
		f, err := os.OpenFile(filepath.Join(w.locks, "lock"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		p := w.start("run", "-w", "300ms", name, "--", "echo", "ran")
		time.Sleep(time.Second)
		f.Close()
		switch name {
		case "x":
			p.ends(75)
			p.expectErr(`lock "x" is held by `)
		case "free":
			p.ends(0)
			p.expectOut("ran")
		}
	}
}

// TestSilentServer: a server that accepts and says nothing is named, with the time.
func TestSilentServer(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // it never says a word
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	addr := listener.Addr().String()
	for _, scheme := range []string{"redis", "etcd", "postgres", "zk"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			v := *w
			v.t = t
			p := v.run(69, "--store", scheme+"://u:s3cr3t@"+addr+"/0", "run", "-n", "x", "--", "touch", w.path("ran"))
			p.expectErr("no answer from " + addr + " within ")
			if strings.Contains(p.err.String(), "s3cr3t") {
				t.Error("the password is shown")
			}
		})
	}
}
