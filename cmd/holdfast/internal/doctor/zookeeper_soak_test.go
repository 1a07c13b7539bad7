//go:build soak

package doctor

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestZooKeeperHealthy: three servers of each version that do well, and fewer.
func TestZooKeeperHealthy(t *testing.T) {
	for _, old := range []bool{true, false} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Old: old, Members: 3})
			findings := examine(t, "zk://app:"+password+"@"+z.Addrs()+"/app")
			version := OK // see zooKeeperFlaws
			if old {
				version = Error
			}
			for check, want := range map[string]Severity{
				"quorum": OK, "leader": OK, "version": version, "sessions": OK, "load": OK, "connections": OK,
				"access": OK, "requests": OK, "store clock": OK, "transport": Note,
			} {
				if got := findings[check]; got.Severity != want {
					t.Errorf("%s of an ensemble that does well: %+v, want %s", check, got, want)
				}
			}
			for _, check := range []string{"disks", "latency", "lock"} { // how quick they are is the machine's affair
				if got := findings[check]; got.Found == "" || got.Severity == Error {
					t.Errorf("%s: %+v", check, got)
				}
			}
			few := examine(t, "zk://"+z.Members[0].Addr+"/few")
			if got := few["quorum"]; got.Severity != Note || !strings.Contains(got.Found, "1 of 3 servers") {
				t.Errorf("a URL with one server of three: %+v", got)
			}
			if got := few["access"]; got.Severity != Note || !strings.Contains(got.Found, "read, change, create beside, delete") {
				t.Errorf("without a user: %+v", got)
			}
			down := z.Followers()[0]
			down.Kill()
			if got := examine(t, "zk://"+z.Addrs()+"/few")["quorum"]; got.Severity != Warning || !strings.Contains(got.Found, down.Addr) {
				t.Errorf("with a server down: %+v", got)
			}
			z.Leader().Kill()
			for _, m := range z.Members {
				if m.Running() {
					for end := time.Now().Add(30 * time.Second); m.Mode() != "" && time.Now().Before(end); {
						time.Sleep(10 * time.Millisecond)
					}
				}
			}
			if got := examine(t, "zk://"+z.Addrs()+"/few")["quorum"]; got.Severity != Error {
				t.Errorf("without a majority: %+v", got)
			}
		})
	}
}

// TestZooKeeperSettings: bounds that do not fit, few connections, small requests, open nodes, and what is
// not seen.
func TestZooKeeperSettings(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{
		TickTime: time.Second, MaxClientConns: 4, MaxBuffer: 1 << 17, FourLetters: "srvr", Admin: true,
	})
	_, port, err := net.SplitHostPort(z.Members[0].Admin)
	if err != nil {
		t.Fatal(err)
	}
	url := "zk://app:" + password + "@" + z.Addrs() + "/app?hf.acl=open"
	seen := examine(t, url+"&hf.admin="+port)
	for check, want := range map[string]struct {
		severity Severity
		says     string
	}{
		"quorum":   {Note, "there is one server"},
		"leader":   {OK, "leads and takes clients"},
		"sessions": {Warning, "sessions last from 2s to 20s, and end up to a tick of 1s late; the TTL of locks is 30s"},
		"requests": {Warning, "requests of 65536 bytes are answered; jute.maxbuffer of " + z.Addrs() + " is 131072, and larger ones are not"},
		"access":   {Note, "read, change, create beside, delete"},
	} {
		if got := seen[check]; got.Severity != want.severity || !strings.Contains(got.Found, want.says) {
			t.Errorf("%s: %+v, want %+v", check, got, want)
		}
	}
	if got := seen["connections"]; !strings.Contains(got.Found, "takes 4 connections of one host") {
		t.Errorf("connections: %+v", got)
	}
	if got := examine(t, url+"&hf.admin="+port+"&hf.ttl=10s")["sessions"]; got.Severity != OK {
		t.Errorf("a TTL between the bounds: %+v", got)
	}
	if got := examine(t, url+"&hf.admin=1")["sessions"]; got.Severity != Note || !strings.Contains(got.Found, "not seen") {
		t.Errorf("a server that tells nothing: %+v", got)
	}
}

// TestZooKeeperMuteLeader: leaderServes=no is told.
func TestZooKeeperMuteLeader(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, NoLeaderClients: true})
	findings := examine(t, "zk://"+z.Addrs()+"/app")
	if got := findings["leader"]; got.Severity != Warning || !strings.Contains(got.Found, z.Leader().Addr+", takes no clients: leaderServes=no") {
		t.Errorf("a leader that takes no clients: %+v", got)
	}
	if got := findings["lock"]; got.Found == "" || got.Severity == Error {
		t.Errorf("a lock there: %+v", got)
	}
}

// TestZooKeeperStrangers: two servers that are not of one ensemble.
func TestZooKeeperStrangers(t *testing.T) {
	one, two := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{}), testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	if got := examine(t, "zk://"+one.Addrs()+","+two.Addrs()+"/app")["quorum"]; got.Severity != Error || !strings.Contains(got.Found, "know nothing of each other") {
		t.Errorf("strangers: %+v", got)
	}
}
