//go:build soak

package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
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
			awaitMode(t, m, "") // a thread may still answer
			m.Resume()
			z.Leader()
		})
	}
}

// TestZooKeeperEnsemble kills, pauses and cuts leaders off.
func TestZooKeeperEnsemble(t *testing.T) {
	for _, old := range []bool{true, false} {
		t.Run(fmt.Sprintf("old=%v", old), func(t *testing.T) {
			t.Parallel()
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
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if mode := third.Mode(); mode != "" {
					t.Fatalf("the member that is cut off is a %q", mode)
				}
			}
			z.Heal(third)
			awaitMode(t, third, "follower")
			if z.Leader() != fourth {
				t.Fatal("the leader has changed when the network was healed")
			}
		})
	}
}

// TestZooKeeperMuteLeader: a leader that takes no clients is found all the same.
func TestZooKeeperMuteLeader(t *testing.T) {
	t.Parallel()
	z := StartZooKeeper(t, ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, NoLeaderClients: true, Admin: true})
	for range 2 {
		leader := z.Leader()
		reply, err := http.Get("http://" + leader.Admin + "/commands/monitor")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if !strings.Contains(string(text), `"leader"`) || err != nil {
			t.Fatalf("the admin server of the member that should lead says %q, %v", text, err)
		}
		leader.Kill()
		if z.NewLeader(leader) == leader {
			t.Fatal("a member that has ended leads")
		}
		leader.Start()
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

// TestZooKeeperClock reads the wall clocks of members from their logs, with the other library loaded too.
func TestZooKeeperClock(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperOptions{Members: 3, TickTime: 100 * time.Millisecond, Clock: true, Between: true})
	m := z.Members[1]
	m.Clock.Set(10 * 366 * 24 * time.Hour)
	for _, other := range z.Members {
		from := len(other.Log())
		other.Ask("srvr")
		year := time.Now().Year()
		if other == m {
			year += 10
		}
		want := fmt.Sprintf("%d-", year)
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if text := other.Log()[from:]; strings.HasPrefix(text, want) {
				break
			} else if time.Now().After(end) {
				t.Fatalf("the log says %q, want a date that begins with %q", text, want)
			}
		}
	}
}

// TestZooKeeperTLS asks servers by TLS, with a certificate and without one.
func TestZooKeeperTLS(t *testing.T) {
	cert, key := selfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []ZooKeeperOptions{{}, {ClientCA: cert}, {Old: true}, {Old: true, ClientCA: cert}} {
		t.Run(fmt.Sprintf("old=%v,ca=%v", o.Old, o.ClientCA != ""), func(t *testing.T) {
			t.Parallel()
			o.Cert, o.Key = cert, key
			z := StartZooKeeper(t, o)
			for _, certificates := range [][]tls.Certificate{nil, {pair}} {
				text, err := askTLS(z.TLSAddrs(), certificates)
				if want := o.ClientCA == "" || certificates != nil; strings.Contains(text, "Mode: standalone") != want {
					t.Errorf("with %d certificates: %q, %v; want an answer: %v", len(certificates), text, err, want)
				}
			}
		})
	}
}

func askTLS(addr string, certificates []tls.Certificate) (string, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", addr, &tls.Config{Certificates: certificates, InsecureSkipVerify: true})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// selfSigned makes a certificate that signs itself, and returns the files.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", public), write("key.pem", "PRIVATE KEY", private)
}
