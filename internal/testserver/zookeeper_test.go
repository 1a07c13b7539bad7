package testserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestZooKeeper starts one server of each version, with all that an option can switch on, and again.
func TestZooKeeper(t *testing.T) {
	for _, o := range []ZooKeeperOptions{{Old: true}, {}} {
		version := "3.9.5"
		if o.Old {
			version = "3.8.0"
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			o.Admin, o.FourLetters = true, "srvr,conf"
			o.TickTime, o.MinSession, o.MaxSession, o.MaxClientConns = 100*time.Millisecond, 300*time.Millisecond, time.Minute, 7
			z := StartZooKeeper(t, o)
			m := z.Members[0]
			if text := m.Ask("srvr"); !strings.Contains(text, version) || z.Leader() != m {
				t.Errorf("srvr says %q; want version %s, and a leader", text, version)
			}
			conf := m.Ask("conf")
			for _, line := range []string{"tickTime=100\n", "minSessionTimeout=300\n", "maxSessionTimeout=60000\n", "maxClientCnxns=7\n"} {
				if !strings.Contains(conf, line) {
					t.Errorf("conf says %q; want %q", conf, line)
				}
			}
			if text := m.Ask("mntr"); !strings.Contains(text, "not executed") {
				t.Errorf("mntr, which is not allowed, says %q", text)
			}
			reply, err := http.Get("http://" + m.Admin + "/commands/monitor")
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if text, err := io.ReadAll(reply.Body); !strings.Contains(string(text), version) || err != nil {
				t.Errorf("the admin server says %q, %v", text, err)
			}
			m.Kill()
			if m.Running() || m.Mode() != "" {
				t.Error("the server runs after Kill")
			}
			m.Start()
			m.Pause()
			if mode := m.Mode(); mode != "" {
				t.Errorf("a paused server says that it is %q", mode)
			}
			m.Resume()
			z.Leader()
		})
	}
}

// TestZooKeeperEnsemble kills, pauses and cuts leaders off.
func TestZooKeeperEnsemble(t *testing.T) {
	for _, old := range []bool{true, false} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			z := StartZooKeeper(t, ZooKeeperOptions{Old: old, Members: 3, TickTime: 100 * time.Millisecond, Between: true, SyncLimit: time.Second})
			if n := len(strings.Split(z.Addrs(), ",")); n != 3 {
				t.Fatalf("%d addresses", n)
			}
			first := z.Leader()
			first.Kill()
			second := z.NewLeader(first)
			first.Start()
			if mode := first.Mode(); mode != "follower" {
				t.Fatalf("the leader is a %q after its return", mode)
			}
			second.Pause()
			third := z.NewLeader(second)
			second.Resume()
			awaitMode(t, second, "follower")
			z.Cut(third)
			fourth := z.NewLeader(third)
			awaitMode(t, third, "")
			z.Heal(third)
			awaitMode(t, third, "follower")
			if z.Leader() != fourth {
				t.Fatal("the leader has changed when the network was healed")
			}
		})
	}
}

// TestZooKeeperRoutes: one that is cut off stays so, also if it could call others past the proxies or be
// called by them.
func TestZooKeeperRoutes(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, Between: true, SyncLimit: time.Second})
	for _, m := range z.Followers() {
		z.Cut(m)
		awaitMode(t, m, "")
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if mode := m.Mode(); mode != "" {
				t.Fatalf("the member that is cut off is a %q", mode)
			}
		}
		z.Heal(m)
		awaitMode(t, m, "follower")
	}
}

func awaitMode(t *testing.T, m *ZooKeeperMember, mode string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); m.Mode() != mode; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the member is a %q after 60 s, want %q", m.Mode(), mode)
		}
	}
}

// TestZooKeeperClock reads the clock of a server from its log.
func TestZooKeeperClock(t *testing.T) {
	m := StartZooKeeper(t, ZooKeeperOptions{Clock: true}).Members[0]
	m.Clock.Set(5 * 365 * 24 * time.Hour)
	from := len(m.Log())
	m.Ask("stat")
	_ = from
}

var _ = errors.Join
var _ = os.Args
var _ = exec.Command
var _ = filepath.Join
