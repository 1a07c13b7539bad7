package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// Cell is a cell, "holdfast serve", with a directory of its own.
type Cell struct {
	Members []*CellMember
}

// CellMember is one member, a process.
type CellMember struct {
	*process
	Name  string
	Data  string       // its directory
	Peers *chaos.Proxy // before its port for members; nil without CellOptions.Between
}

// StartCell starts a cell, which ends with the test. It builds the command from its source.
func StartCell(t testing.TB, o CellOptions) *Cell {
	t.Helper()
	build := cellProgram
	if o.Clock {
		build = clockedCellProgram
	}
	program, err := build()
	Must(t, err)
	return started(t, "the cell", func() (*Cell, error) { return startCell(t, program, o) })
}

func startCell(t testing.TB, program string, o CellOptions) (*Cell, error) {
	t.Helper()
	dir, c := shortDir(t, ""), &Cell{}
	var peers []string
	for i := range max(1, o.Members) {
		name := "m" + strconv.Itoa(i)
		m := &CellMember{Name: name, Data: filepath.Join(dir, name), process: &process{t: t, ready: "cell://", Addr: FreeAddrs(t, 1)[0]}}
		m.args = append([]string{
			program, "serve", "--name", name, "--data", m.Data, "--listen", m.Addr, "--log", "warn",
		}, o.Args...)
		if o.Clock {
			m.args = slices.Delete(m.args, 1, 2) // it can do nothing else
			m.Clock = &Clock{t: t, file: filepath.Join(dir, "clock")}
			Must(t, os.WriteFile(m.Clock.file, make([]byte, 8), 0o600))
			m.env = append(os.Environ(), "HOLDFAST_TEST_CLOCK="+m.Clock.file)
		}
		t.Cleanup(m.Kill)
		if o.Cert != "" {
			m.ready, m.args = "cells://", append(m.args, "--tls-cert", o.Cert, "--tls-key", o.Key)
		}
		if o.Election != 0 {
			m.args = append(m.args, "--election", o.Election.String(), "--heartbeat", (o.Election / 10).String())
		}
		if o.Members > 1 {
			peer := FreeAddrs(t, 1)[0]
			m.args = append(m.args, "--peer-listen", peer)
			if o.Between {
				m.Peers = chaos.StartProxy(t, peer)
				peer = m.Peers.Addr
			}
			peers = append(peers, "--member", name+"=http://"+peer)
		}
		c.Members = append(c.Members, m)
	}
	return c, together(c.Members, func(m *CellMember) error {
		m.args = append(m.args, peers...)
		return m.start()
	})
}

// Addrs returns the addresses of all members, separated by commas, as a store URL has them.
func (c *Cell) Addrs() string { return addrs(c.Members, func(m *CellMember) string { return m.Addr }) }

// SetWallClock sets the member's wall clock ahead of the host's by whole seconds, or behind it, and returns
// what it shows then. The cell must have been started with CellOptions.Clock.
func (m *CellMember) SetWallClock(ahead time.Duration) (shown time.Time) {
	m.t.Helper()
	m.Clock.Set(ahead)
	await(m.t, "the member sets its clock", func() bool {
		_, after, _ := strings.Cut(m.Log(), fmt.Sprintf("wall %d ", ahead/time.Second))
		text, _, whole := strings.Cut(after, "\n")
		nanos, _ := strconv.ParseInt(text, 10, 64)
		shown = time.Unix(0, nanos)
		return whole
	})
	return shown
}
