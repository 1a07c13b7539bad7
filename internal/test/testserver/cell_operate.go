package testserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
)

// cellStatus is what a member says of the cell.
type cellStatus struct {
	Member, Leader string
	Members        []struct{ Name, ID string }
}

// status asks the member how the cell is.
func (m *CellMember) status() (s cellStatus, err error) {
	client := http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://"+m.Addr+"/holdfast.cell.v1.Cell/Status", "application/json", strings.NewReader("{}"))
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// Leader returns the member that leads.
func (c *Cell) Leader() *CellMember { return c.NewLeader(nil) }

// NewLeader waits until another member than the old one leads, by what that one says itself.
func (c *Cell) NewLeader(old *CellMember) (leader *CellMember) {
	t := c.Members[0].t
	t.Helper()
	await(t, "a member leads", func() bool {
		for _, m := range c.Members {
			if m == old || !m.Running() || m.paused {
				continue
			}
			if s, err := m.status(); err == nil && s.Leader == m.Name {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// Followers returns the members that do not lead.
func (c *Cell) Followers() []*CellMember {
	leader := c.Leader()
	return slices.DeleteFunc(slices.Clone(c.Members), func(m *CellMember) bool { return m == leader })
}

// HoldFrom holds back what a member sends to the others, until Heal. The cell must have been started with
// CellOptions.Between.
func (c *Cell) HoldFrom(m *CellMember) { c.hold(m, chaos.ToClient, chaos.ToServer) }

// HoldTo holds back what the others send to a member, until Heal.
func (c *Cell) HoldTo(m *CellMember) { c.hold(m, chaos.ToServer, chaos.ToClient) }

// hold holds back one way of what passes through the member's own proxy, and the other way of what it sends
// through those of the others: it says in each request to another who it is.
func (c *Cell) hold(m *CellMember, own, others chaos.Direction) {
	m.t.Helper()
	s, err := m.status()
	at := slices.IndexFunc(s.Members, func(of struct{ Name, ID string }) bool { return of.Name == m.Name })
	if err != nil || at < 0 {
		m.t.Fatalf("%s is not among the members %v: %v", m.Name, s.Members, err)
	}
	for _, other := range c.Members {
		if other == m {
			other.Peers.Hold(own, "")
		} else {
			other.Peers.Hold(others, "X-Server-From: "+s.Members[at].ID+"\r")
		}
	}
}

// Heal ends what holds back messages between members.
func (c *Cell) Heal() {
	for _, m := range c.Members {
		m.Peers.Heal()
	}
}

// Start starts all members that have ended, at the same time.
func (c *Cell) Start() {
	t := c.Members[0].t
	t.Helper()
	err := together(c.Members, func(m *CellMember) error {
		if m.Running() {
			return nil
		}
		return m.start()
	})
	if err != nil {
		t.Fatalf("the cell did not start again: %v", err)
	}
}

// Replace takes a member out of the cell, whose data are lost, and starts another one in its place, by the
// commands that an operator has.
func (c *Cell) Replace(m *CellMember) {
	m.t.Helper()
	m.Kill()
	Must(m.t, os.RemoveAll(m.Data))
	i := slices.IndexFunc(m.args, func(arg string) bool { return strings.HasPrefix(arg, m.Name+"=") })
	_, url, _ := strings.Cut(m.args[i], "=")
	for _, command := range [][]string{{"remove", m.Name}, {"add", url}} {
		Must(m.t, c.operate(m, command))
	}
	if !slices.Contains(m.args, "--join") {
		m.args = append(m.args, "--join")
	}
	m.Start()
}

// operate runs a command about the cell at the members that are left.
func (c *Cell) operate(without *CellMember, command []string) error {
	var left []string
	for _, m := range c.Members {
		if m != without {
			left = append(left, m.Addr)
		}
	}
	args := append([]string{"cell"}, append(command, "--store", "cell://"+strings.Join(left, ","))...)
	// etcd changes members only when those that are left have been connected for a while.
	for end := time.Now().Add(60 * time.Second); ; {
		out, err := exec.Command(without.args[0], args...).CombinedOutput()
		if err == nil || time.Now().After(end) {
			if err != nil {
				err = fmt.Errorf("holdfast %s: %w\n%s", strings.Join(args, " "), err, out)
			}
			return err
		}
	}
}

// AwaitEnd waits until the member has ended by itself.
func (m *CellMember) AwaitEnd() {
	m.t.Helper()
	select {
	case <-m.exited:
	case <-time.After(60 * time.Second):
		m.t.Fatalf("%s goes on", m.Name)
	}
}

// StartWith starts the member after Stop or Kill with more arguments.
func (m *CellMember) StartWith(args ...string) {
	m.t.Helper()
	m.args = append(m.args, args...)
	m.Start()
}

// Wipe kills the member and starts it without its data.
func (m *CellMember) Wipe() {
	m.t.Helper()
	m.Kill()
	Must(m.t, os.RemoveAll(m.Data))
	m.Start()
}
