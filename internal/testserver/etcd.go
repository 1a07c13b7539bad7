package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
)

// EtcdOptions configure an etcd cluster. The zero value is one member as etcd is
// set up by default.
type EtcdOptions struct {
	Members   int           // 0: one
	Election  time.Duration // without a heartbeat before an election, ten times that between two; 0: 1 s
	Quota     int64         // bytes that the data may have; 0: etcd's default
	Sync      bool          // write to the disk before answering: what a killed process has written is there anyhow
	Cert, Key string        // files, for clients that come by TLS
	ClientCA  string        // a file, if those clients need a certificate that is signed by it
	Between   bool          // members reach each other through proxies only: see EtcdMember.Peers
}

// Etcd is a private etcd cluster of one test, with a directory of its own. Its
// methods end the test on failure; call them on the test's own goroutine.
type Etcd struct {
	Members []*EtcdMember
}

// EtcdMember is one member, a process. Its methods end the test on failure; call
// them on the test's own goroutine, one at a time.
type EtcdMember struct {
	Addr  string       // for clients, on the loopback interface, host:port
	Peers *chaos.Proxy // before its port for members; nil without EtcdOptions.Between
	t     testing.TB
	log   string // a file
	args  []string
	cmd   *exec.Cmd
	in    io.WriteCloser
	wall  chan time.Time
	exit  chan struct{} // closed when cmd has ended
}

// StartEtcd starts a cluster, which ends with the test. It builds the server from
// its source.
func StartEtcd(t testing.TB, o EtcdOptions) *Etcd {
	t.Helper()
	program, err := etcdProgram()
	if err != nil {
		t.Fatal(err)
	}
	const attempts = 5 // another program may take a port before a member does
	for i := range attempts {
		var e *Etcd
		if e, err = startEtcd(t, program, o); err == nil {
			return e
		}
		t.Logf("etcd, attempt %d: %v", i+1, err)
	}
	t.Fatalf("etcd did not start: %v", err)
	return nil
}

func startEtcd(t testing.TB, program string, o EtcdOptions) (*Etcd, error) {
	t.Helper()
	election := o.Election
	if election == 0 {
		election = time.Second
	}
	dir := t.TempDir()
	e := &Etcd{}
	var cluster []string
	for i := range max(1, o.Members) {
		name, scheme := "m"+strconv.Itoa(i), "http://"
		m := &EtcdMember{t: t, Addr: freeAddr(t), log: filepath.Join(dir, name+".log")}
		t.Cleanup(m.Kill)
		peer := freeAddr(t)
		advertised := peer
		if o.Between {
			m.Peers = chaos.StartProxy(t, peer)
			advertised = m.Peers.Addr
		}
		if o.Cert != "" {
			scheme = "https://"
		}
		cluster = append(cluster, name+"=http://"+advertised)
		m.args = []string{
			program, "-name", name, "-dir", filepath.Join(dir, name), "-client", scheme + m.Addr, "-peer", "http://" + peer,
			"-advertised", "http://" + advertised, "-cert", o.Cert, "-key", o.Key, "-clientca", o.ClientCA, "-quota", strconv.FormatInt(o.Quota, 10),
			"-nosync=" + strconv.FormatBool(!o.Sync), "-heartbeat", strconv.FormatInt(max(1, election.Milliseconds()/10), 10),
			"-election", strconv.FormatInt(election.Milliseconds(), 10),
		}
		e.Members = append(e.Members, m)
	}
	started := make(chan error, len(e.Members))
	for _, m := range e.Members {
		m.args = append(m.args, "-cluster", strings.Join(cluster, ","))
		go func() { started <- m.start() }()
	}
	var errs error
	for range e.Members {
		errs = errors.Join(errs, <-started)
	}
	if errs != nil {
		for _, m := range e.Members {
			m.Kill()
		}
	}
	return e, errs
}

// Addrs returns the addresses of all members, separated by commas, as a store URL
// has them.
func (e *Etcd) Addrs() string {
	var addrs []string
	for _, m := range e.Members {
		addrs = append(addrs, m.Addr)
	}
	return strings.Join(addrs, ",")
}

// start starts the process and waits until it says that it serves.
func (m *EtcdMember) start() error {
	cmd := exec.Command(m.args[0], m.args[1:]...)
	log, err := os.Create(m.log)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ready, wall, exit := make(chan struct{}), make(chan time.Time, 1), make(chan struct{})
	m.cmd, m.in, m.wall, m.exit = cmd, in, wall, exit
	go func() {
		defer close(exit)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "ready" {
				close(ready)
			} else if nanos, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "wall "), 10, 64); err == nil {
				wall <- time.Unix(0, nanos)
			}
		}
		cmd.Wait()
	}()
	select {
	case <-ready:
		return nil
	case <-exit:
		said, err := os.ReadFile(m.log)
		return errors.Join(fmt.Errorf("etcd ended:\n%s", said), err)
	case <-time.After(60 * time.Second):
		m.Kill()
		return errors.New("etcd did not serve within 60 s")
	}
}

// Start starts the member again after Kill, with the data that is on its disk,
// and waits until it serves, for which a majority must be there.
func (m *EtcdMember) Start() {
	m.t.Helper()
	if err := m.start(); err != nil {
		m.t.Fatalf("etcd did not start again: %v", err)
	}
}

// Kill ends the member at once (SIGKILL), paused or not. On one that has ended it
// does nothing.
func (m *EtcdMember) Kill() {
	if m.cmd != nil {
		m.cmd.Process.Kill() // fails if it has ended
		<-m.exit
	}
}

// Pause stops the member (SIGSTOP): it keeps its connections and answers nothing,
// while its clock runs on. Resume lets it go on.
func (m *EtcdMember) Pause() { m.signal(syscall.SIGSTOP) }

// Resume lets a paused member go on (SIGCONT).
func (m *EtcdMember) Resume() { m.signal(syscall.SIGCONT) }

func (m *EtcdMember) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatalf("etcd cannot be signalled: %v", err)
	}
}

// JumpWallClock sets the member's wall clock forward, or back, by whole seconds,
// and returns what it shows then.
func (m *EtcdMember) JumpWallClock(by time.Duration) time.Time {
	m.t.Helper()
	if _, err := fmt.Fprintf(m.in, "jump %v\n", by); err != nil {
		m.t.Fatalf("etcd does not listen: %v", err)
	}
	select {
	case now := <-m.wall:
		return now
	case <-time.After(10 * time.Second):
		m.t.Fatal("etcd did not set its clock within 10 s")
		return time.Time{}
	}
}
