//go:build soak

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/celllock"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// The clients of docs/cell-clients, beside each other and beside Holdfast. A peer
// has one session; its arguments are the members, and the TTL in milliseconds.

// TestCellClients compares what the clients do with what docs/cell-languages.md says of them.
func TestCellClients(t *testing.T) {
	t.Parallel()
	clients := cellClients(t)
	t.Run("exclude", func(t *testing.T) {
		t.Parallel()
		exclude(t, clients)
	})
	cell := testserver.StartCell(t, testserver.CellOptions{Members: 3})
	for _, l := range clients {
		for name, test := range map[string]func(*testing.T, *testserver.Cell, library, string){
			"paused": paused, "broken": broken, "late": late,
		} {
			t.Run(name+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				test(t, cell, l, name+"/"+l.name)
			})
		}
	}
}

// cellClients returns the kinds of peers that have one of these clients.
func cellClients(t *testing.T) []library {
	t.Helper()
	classes := cellClientInJava(t)
	node := testserver.Need(t, "node", "nodejs")
	python := filepath.Join(testserver.NeedPeers(t), "python", "bin", "python3")
	return []library{
		{name: "Python", command: func(args string) *exec.Cmd {
			return exec.Command(python, strings.Fields("python/cell_peer.py "+args)...)
		}},
		{name: "JavaScript", command: func(args string) *exec.Cmd {
			return exec.Command(node, strings.Fields("node/cell-peer.mjs "+args)...)
		}},
		{name: "Java", command: func(args string) *exec.Cmd {
			return exec.Command("java", strings.Fields("-XX:TieredStopAtLevel=1 -cp "+classes+" CellPeer "+args)...)
		}},
	}
}

// cellClientInJava compiles the client in Java and its peer, and returns where the classes are.
func cellClientInJava(t *testing.T) (classPath string) {
	t.Helper()
	gson := filepath.Join(testserver.NeedPeers(t), "java", "gson-2.11.0.jar")
	javac := testserver.Need(t, "javac", "default-jdk-headless")
	dir := t.TempDir()
	cmd := exec.Command(javac, "-Xlint:all,-try,-serial", "-Werror", "-cp", gson, "-d", dir,
		"../docs/cell-clients/HoldfastCell.java", "java/cell/CellPeer.java")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir + ":" + gson
}

// exclude: programs of all languages, and Holdfast, increment the number in a file that
// nothing but the lock guards, and check that tokens grow. Of three members one is killed on the way,
// another one is told to stop after that, and each is started again.
func exclude(t *testing.T, clients []library) {
	const times = 250
	cell := testserver.StartCell(t, testserver.CellOptions{Members: 3})
	file := filepath.Join(t.TempDir(), "number")
	if err := os.WriteFile(file, []byte("0 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var peers []*peer
	for _, l := range clients {
		peers = append(peers, l.start(t, cell.Addrs()+" 10000"))
	}
	for _, p := range peers {
		p.tell("count number %s %d", file, times)
	}
	var ours sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer ours.Wait()
	defer cancel()
	ours.Go(func() { countByHoldfast(ctx, t, "cell://"+cell.Addrs(), file, times) })
	all := (len(peers) + 1) * times
	reach(t, file, all/5)
	cell.Members[0].Kill() // all of them use this one first
	reach(t, file, 2*all/5)
	cell.Members[0].Start()
	reach(t, file, 3*all/5)
	cell.Members[1].Stop()
	reach(t, file, 4*all/5)
	cell.Members[1].Start()
	for _, p := range peers {
		p.expect("ok", p.answer())
	}
	ours.Wait()
	if n, _ := counted(t, file); n != all {
		t.Errorf("the number is %d after %d increments", n, all)
	}
}

// countByHoldfast increments as the peers do.
func countByHoldfast(ctx context.Context, t *testing.T, store, file string, times int) {
	c, err := holdfast.Open(ctx, store)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	lock := c.Mutex("number", &holdfast.Options{TTL: 10 * time.Second})
	for done := 0; done < times; {
		err := lock.Do(ctx, func(_ context.Context, lease *holdfast.Lease) error {
			n, last := counted(t, file)
			if uint64(lease.Token()) <= last {
				t.Errorf("token %d after %d", lease.Token(), last)
			}
			done++
			return overwrite(file, fmt.Sprintf("%d %d\n", n+1, lease.Token()))
		})
		if err != nil && !errors.Is(err, holdfast.ErrUncertain) { // of a call to a member that was killed
			t.Error(err)
			return
		}
	}
}

// reach waits until the number is that large.
func reach(t *testing.T, file string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		n, _ := counted(t, file)
		if n >= want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the number is %d after %v", n, patience)
		}
	}
}

// counted returns what the file says: the number, and the token of whoever wrote it. One who does not
// hold the lock may see neither.
func counted(t *testing.T, file string) (number int, token uint64) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	fmt.Sscan(string(text), &number, &token) // else they are 0
	return number, token
}

// paused: a program that is stopped for longer than its TTL finds that it has lost its lock when it goes
// on. Another one that has waited has the lock.
func paused(t *testing.T, cell *testserver.Cell, l library, name string) {
	holder, next := l.start(t, cell.Addrs()+" 5000"), l.start(t, cell.Addrs()+" 60000")
	holder.do("held", "lock %s 0", name)
	next.do("busy", "lock %s 0", name)
	holder.do("ok", "check")
	holder.signal(syscall.SIGSTOP)
	next.do("held", "lock %s 60000", name)
	holder.signal(syscall.SIGCONT)
	holder.fails("check")
	holder.fails("unlock")
	next.do("ok", "check")
	next.do("ok", "unlock")
}

// broken: a program whose lock an operator has broken finds that it has lost it, and takes another one
// with the same session.
func broken(t *testing.T, cell *testserver.Cell, l library, name string) {
	c, err := holdfast.Open(t.Context(), "cell://"+cell.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := l.start(t, cell.Addrs()+" 60000")
	p.do("held", "lock %s 0", name)
	info, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Break(t.Context(), name, info.Holders[0].Token); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); p.ask("check") == "ok"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not see that its lock was broken", l.name)
		}
	}
	p.fails("unlock")
	p.do("held", "lock %s 0", name)
	p.do("ok", "unlock")
}

// late: the answer to a client's Open comes late, and later ones do not come at all. The client counts its
// trust from when it sent its call: so it does not trust its lock any more when the cell gives it to
// another one.
func late(t *testing.T, cell *testserver.Cell, l library, name string) {
	const by = 2200 * time.Millisecond // before a third of the TTL, when the parked call extends it
	proxy := chaos.StartProxy(t, cell.Members[0].Addr)
	next := l.start(t, cell.Addrs()+" 60000")
	proxy.Delay(chaos.ToClient, by)
	holder := l.start(t, proxy.Addr+" 10000")
	proxy.Delay(chaos.ToClient, 0)
	holder.do("held", "lock %s 0", name)
	proxy.Cut()
	next.do("held", "lock %s 60000", name)
	holder.fails("check")
	next.do("ok", "unlock")
}

// fails sends a command whose answer must be that the lock is lost, and why.
func (p *peer) fails(command string) {
	p.t.Helper()
	if got := p.ask("%s", command); !strings.HasPrefix(got, "lost: ") {
		p.t.Errorf("%s answers %q to %q", p.name, got, command)
	}
}
