//go:build soak

package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/drivertest/faults"
)

// crowd is processes of clients, as the test sees them.
type crowd struct {
	testing.TB
	processes []*process
	filing    int           // how many of them, the first, have files
	holds     []faults.Hold // since the last judgement
	files     fileJudge
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startCrowd starts n processes, which end with the test, and waits until all their clients are at work.
func startCrowd(t testing.TB, n int, s settings) *crowd {
	t.Helper()
	c := &crowd{TB: t, filing: n}
	group := s.Group
	for i := range n {
		s.Process, s.Group, s.First = i, fmt.Sprint(group, "/", i), i*s.Users
		c.processes = append(c.processes, startProcess(t, s))
	}
	c.answers()
	return c
}

// join takes in the processes of another crowd, which has no files.
func (c *crowd) join(other *crowd) {
	c.processes, c.holds = append(c.processes, other.processes...), append(c.holds, other.holds...)
}

func startProcess(t testing.TB, s settings) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), crowdEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill() // it may have ended
	p.cmd.Wait()         // it was killed
}

// tell gives all processes a command, and returns what their keepers have.
func (c *crowd) tell(command string) []kept {
	c.Helper()
	for _, p := range c.processes {
		if _, err := fmt.Fprintln(p.in, command); err != nil {
			c.Fatal(err)
		}
	}
	if command == "served" {
		c.files.epoch++
	}
	return c.answers()
}

func (c *crowd) answers() (all []kept) {
	c.Helper()
	for i, p := range c.processes {
		var r report
		if err := p.out.Decode(&r); err != nil {
			c.Fatalf("a process of clients does not answer: %v", err)
		}
		for _, w := range r.Wrong {
			c.Error(w)
		}
		c.holds = append(c.holds, r.Holds...)
		if i < c.filing {
			c.files.take(i, r.Files)
		}
		all = append(all, r.Kept...)
	}
	return all
}

// settled renews what keepers have, of which nothing may be lost. What they trust must be in the cell that
// the witness sees (P2).
func (c *crowd) settled(witness *holdfast.Client) {
	c.Helper()
	var asked sync.WaitGroup
	room := make(chan struct{}, 16)
	for _, k := range c.tell("settle") {
		room <- struct{}{}
		asked.Go(func() {
			defer func() { <-room }()
			info, err := witness.Inspect(c.Context(), k.Name)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != k.Token {
				c.Errorf("P2: %s is trusted with token %d, and the cell shows %+v, %v", k.Name, k.Token, info, err)
			}
		})
	}
	asked.Wait()
}

// verdict is what was seen of holds.
type verdict struct {
	holds, lost int
	longest     time.Duration // for which a name stood still, although others waited for it
}

func (v verdict) String() string {
	return fmt.Sprintf("%d holds, %d lost, no name stood still for more than %v", v.holds, v.lost, v.longest.Round(time.Millisecond))
}

// judge looks at the holds since the last judgement: no two were trusted at the same time (P1), none after
// its deadline (P2), and tokens grew (P3).
func (c *crowd) judge() (v verdict) {
	c.Helper()
	wrong := slices.Concat(faults.Overlaps(c.holds), faults.Late(c.holds), faults.Disorder(c.holds))
	if len(wrong) > 0 {
		c.Error(strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
	last := map[string]faults.Hold{}
	slices.SortFunc(c.holds, func(a, b faults.Hold) int { return int(a.From - b.From) })
	for _, h := range c.holds {
		if h.Lost != "" {
			v.lost++
		}
		if before, ok := last[h.Name]; ok && h.From != 0 {
			v.longest = max(v.longest, h.From.Sub(before.Until))
		}
		last[h.Name] = h
	}
	v.holds, c.holds = len(c.holds), nil
	return v
}

// closedNames are names that must stay closed whatever happens: each has a reason to.
type closedNames []kept

// long is a lock-delay that outlasts a test.
const long = 9 * time.Minute

// closeNames takes names and leaves them closed: holders of some are killed with their process (kill -9), the
// session of one is killed by an operator, and one is released before its minimum hold is over.
func closeNames(t testing.TB, addrs string) (names closedNames) {
	t.Helper()
	c := client(t, addrs)
	ttl := c.Caps().MinTTL
	dead := startProcess(t, settings{URL: url(addrs), Group: "dead", Keepers: 3, KeptTTL: ttl, LockDelay: long, Watches: true})
	names = (&crowd{TB: t, processes: []*process{dead}}).answers()
	dead.kill()
	awaitNobodyAlive(t, addrs)
	killed := acquire(t, c, "dead/session", &holdfast.Options{TTL: ttl, LockDelay: long + time.Second})
	killSession(t, addrs, long+time.Second)
	<-killed.Done()
	brief := acquire(t, c, "dead/brief", &holdfast.Options{TTL: ttl, MinHold: long})
	if err := brief.Release(); err != nil {
		t.Fatal(err)
	}
	return append(names, kept{killed.Name(), killed.Token()}, kept{brief.Name(), brief.Token()})
}

// awaitNobodyAlive waits until the nodes of all watchers' sessions have gone.
func awaitNobodyAlive(t testing.TB, addrs string) {
	t.Helper()
	of := cellClient(t, addrs)
	for end := time.Now().Add(recoverWithin); ; time.Sleep(20 * time.Millisecond) {
		next, stop := iter.Pull2(of.ReadDir(t.Context(), aliveDirectory))
		n, err, there := next()
		stop()
		if !there {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("P5: the node of a session whose process was killed is %+v, %v", n, err)
		}
	}
}

// check asserts that all names are closed.
func (names closedNames) check(t testing.TB, c *holdfast.Client) {
	t.Helper()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(t.Context(), recoverWithin)
		lease, err := c.Mutex(name.Name, nil).TryAcquire(ctx)
		cancel()
		if err == nil {
			t.Errorf("P5: %s is to stay closed, and was granted with token %d after %d", name.Name, lease.Token(), name.Token)
		} else if !isHeld(err) {
			t.Errorf("%s: %v", name.Name, err)
		}
	}
}
