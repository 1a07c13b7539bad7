package testserver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
)

// CellOptions configure a cell. The zero value is one member.
type CellOptions struct {
	Members  int           // 0: one
	Election time.Duration // without a heartbeat before an election, ten times that between two; 0: 1 s
	Between  bool          // members reach each other through proxies only: see CellMember.Peers
	Cert     string        // the certificate for clients, a file in PEM form; "": clients come without TLS
	Key      string        // its private key
	Clock    bool          // of one member: its wall clock can be set; it is another program than holdfast then
	Args     []string      // more arguments for each member
}

// Cell is a private cell of one test, "holdfast serve", with a directory of its own. Its methods end the
// test on failure; call them on the test's own goroutine.
type Cell struct {
	Members []*CellMember
}

// CellMember is one member, a process. Its methods end the test on failure; call them on the test's own
// goroutine, one at a time.
type CellMember struct {
	*process
	Name  string
	Addr  string       // for clients, on the loopback interface, host:port
	Data  string       // its directory
	Peers *chaos.Proxy // before its port for members; nil without CellOptions.Between
	clock *Clock       // nil without CellOptions.Clock
}

// StartCell starts a cell, which ends with the test. It builds the command from its source.
func StartCell(t testing.TB, o CellOptions) *Cell {
	t.Helper()
	build := cellProgram
	if o.Clock {
		build = clockedCellProgram
	}
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	const attempts = 5 // another program may take a port before a member does
	for i := range attempts {
		var c *Cell
		if c, err = startCell(t, program, o); err == nil {
			return c
		}
		t.Logf("cell, attempt %d: %v", i+1, err)
	}
	t.Fatalf("the cell did not start: %v", err)
	return nil
}

func startCell(t testing.TB, program string, o CellOptions) (*Cell, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-") // short: the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cell{}
	var peers []string
	for i := range max(1, o.Members) {
		name := "m" + strconv.Itoa(i)
		m := &CellMember{Name: name, Addr: freeAddr(t), Data: filepath.Join(dir, name)}
		m.process = &process{t: t, ready: "cell://", args: append([]string{
			program, "serve", "--name", name, "--data", m.Data, "--listen", m.Addr, "--log", "warn",
		}, o.Args...)}
		if o.Clock {
			m.args = slices.Delete(m.args, 1, 2) // it can do nothing else
			m.clock, m.env = newMemberClock(t, dir)
		}
		t.Cleanup(m.Kill)
		if o.Cert != "" {
			m.ready, m.args = "cells://", append(m.args, "--tls-cert", o.Cert, "--tls-key", o.Key)
		}
		if o.Election != 0 {
			m.args = append(m.args, "--election", o.Election.String(), "--heartbeat", (o.Election / 10).String())
		}
		if o.Members > 1 {
			peer := freeAddr(t)
			m.args = append(m.args, "--peer-listen", peer)
			if o.Between {
				m.Peers = chaos.StartProxy(t, peer)
				peer = m.Peers.Addr
			}
			peers = append(peers, "--member", name+"=http://"+peer)
		}
		c.Members = append(c.Members, m)
	}
	started := make(chan error, len(c.Members))
	for _, m := range c.Members {
		m.args = append(m.args, peers...)
		go func() { started <- m.start() }()
	}
	var errs error
	for range c.Members {
		errs = errors.Join(errs, <-started)
	}
	if errs != nil {
		for _, m := range c.Members {
			m.Kill()
		}
	}
	return c, errs
}

// Addrs returns the addresses of all members, separated by commas, as a store URL has them.
func (c *Cell) Addrs() string {
	var addrs []string
	for _, m := range c.Members {
		addrs = append(addrs, m.Addr)
	}
	return strings.Join(addrs, ",")
}

// PID is the member's process.
func (m *CellMember) PID() int { return m.cmd.Process.Pid }

// Stop tells the member to stop (SIGTERM), and waits until it has.
func (m *CellMember) Stop() { m.end(syscall.SIGTERM) }

// cellProgram builds the command, and returns its path.
var cellProgram = sync.OnceValues(func() (program string, err error) {
	root, err := workspace()
	if err != nil {
		return "", err
	}
	// Each clone of the repository has its own program: tests of several may run at the same time.
	dir, err := cacheDir(fmt.Sprintf("holdfast-cell-%x", sha256.Sum256([]byte(root)))[:21])
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "holdfast")
	build := exec.Command("go", slices.Concat([]string{"build", "-C", root}, BuildFlags(), []string{"-o", program, "./cmd/holdfast"})...)
	build.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building holdfast: %w\n%s", err, out)
	}
	return program, nil
})
