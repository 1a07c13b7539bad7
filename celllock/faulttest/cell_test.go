//go:build soak

package faulttest

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// threeMembers is a cell of three, and the way of clients to each.
type threeMembers struct {
	*testserver.Cell
	links []*chaos.Proxy
	addrs string // for clients: those of the links
}

func startThree(t testing.TB, o testserver.CellOptions) *threeMembers {
	t.Helper()
	o.Members = 3
	c := &threeMembers{Cell: testserver.StartCell(t, o)}
	for i, m := range c.Members {
		link := chaos.StartProxy(t, m.Addr)
		if c.links = append(c.links, link); i > 0 {
			c.addrs += ","
		}
		c.addrs += link.Addr
	}
	return c
}

// link returns the way to a member.
func (c *threeMembers) link(m *testserver.CellMember) *chaos.Proxy {
	return c.links[slices.Index(c.Members, m)]
}

// A crowd is 100 clients that keep a lock each, and 100 that use one of 20 names, so that 80 of these wait; and ten
// processes of which each has two more users, and one client that writes files and one that watches them. Some of the
// users write a file under the lock.
const (
	crowdKeepers = 100
	crowdUsers   = 100
	crowdWriters = 10
	crowdNames   = 20
	crowdFiles   = 4
	keptTTL      = 40 * time.Second // longer than any fault lasts, on a busy machine too
	usedTTL      = 4 * time.Second
	beyond       = usedTTL + time.Second // longer than users' sessions last
)

// each is 1 where nothing but the crowd wants the processors, and there is no race detector.
var each = flag.Int("each", 10, "how many clients of TestCrowd share a process")

// TestCrowd does to three members under that crowd what can happen to them. Nobody is trusted twice, tokens
// grow, losses are told in time, no session is lost whose client keeps its calls, names that are to stay
// closed do, and everybody is served afterwards. No write of a file is lost or done twice, watchers miss nothing without
// being told to read, and nobody writes under a lock that is over.
func TestCrowd(t *testing.T) {
	t.Parallel()
	testserver.TakeTurn(t)
	c := startThree(t, testserver.CellOptions{Election: quick, Between: true})
	closed := closeNames(t, c.Addrs())
	crowd := startCrowd(t, crowdWriters, settings{
		URL: url(c.addrs), Users: 2, Names: crowdNames, UsedTTL: usedTTL, Fenced: true, Writes: crowdFiles, Watches: true,
	})
	crowd.join(startCrowd(t, crowdKeepers / *each, settings{URL: url(c.addrs), Group: "own", Keepers: *each, KeptTTL: keptTTL}))
	crowd.join(startCrowd(t, crowdUsers / *each, settings{URL: url(c.addrs), Users: *each, Names: crowdNames, UsedTTL: usedTTL}))
	witness, files := client(t, c.Addrs()), cellClient(t, c.Addrs())
	for _, fault := range c.faults(t) {
		t.Run(fault.name, func(t *testing.T) {
			crowd.TB = t
			began := time.Now()
			fault.spoil()
			spoiled := time.Since(began)
			crowd.tell("served")
			crowd.settled(witness)
			crowd.files.lives(t, files)
			closed.check(t, witness)
			t.Logf("%v, and everybody was served %v after it; %v", spoiled.Round(time.Millisecond),
				(time.Since(began) - spoiled).Round(time.Millisecond), crowd.judge())
			t.Log(crowd.files.judge(t))
		})
	}
	crowd.TB = t
	crowd.tell("end")
	crowd.judge()
	crowd.files.epoch++
	crowd.files.views = nil // they may have ended before the last writes
	crowd.files.judge(t)
	crowd.files.alive = nil
	crowd.files.lives(t, files)
	opened(t, witness)
}

// opened asserts what makes names that stay closed worth a test: others open again.
func opened(t testing.TB, c *holdfast.Client) {
	t.Helper()
	dead := acquire(t, c, "opens", &holdfast.Options{TTL: time.Second, LockDelay: time.Second, RenewEvery: -1})
	<-dead.Done()
	if next := acquire(t, c, "opens", nil); next.Token() <= dead.Token() {
		t.Errorf("P3: token %d comes after %d", next.Token(), dead.Token())
	}
}

// fault is something that can happen to a cell. Spoil returns when it is over.
type fault struct {
	name  string
	spoil func()
}

func (c *threeMembers) faults(t *testing.T) []fault {
	follower := func() *testserver.CellMember { return c.Followers()[0] }
	return []fault{
		{"a follower is killed", func() {
			m := follower()
			m.Kill()
			time.Sleep(quick)
			m.Start()
		}},
		{"the leader is killed", func() {
			m := c.Leader()
			m.Kill()
			c.NewLeader(m)
			m.Start()
		}},
		{"a follower stands still", func() {
			m := follower()
			m.Pause()
			time.Sleep(beyond)
			m.Resume()
		}},
		{"the leader stands still", func() {
			m := c.Leader()
			m.Pause()
			c.NewLeader(m)
			time.Sleep(beyond)
			m.Resume()
		}},
		{"what the leader sends does not arrive", func() {
			m := c.Leader()
			c.HoldFrom(m)
			c.NewLeader(m)
			time.Sleep(quick)
			c.Heal()
		}},
		{"the leader hears nothing", func() {
			m := c.Leader()
			c.HoldTo(m)
			c.NewLeader(m)
			time.Sleep(quick)
			c.Heal()
		}},
		{"clients are cut off from the leader", func() {
			link := c.link(c.Leader())
			link.Cut()
			time.Sleep(quick)
			link.Heal()
		}},
		{"answers of a follower are held back", func() {
			link := c.link(follower())
			link.Hold(chaos.ToClient, "")
			time.Sleep(beyond)
			link.Heal()
		}},
		{"the leader's disk is slow", func() {
			end := slowDisk(t, c.Leader().PID())
			time.Sleep(beyond)
			end()
		}},
		{"a follower's disk is full", func() { c.fillDisk(follower()) }},
		{"the leader's disk is full", func() { c.fillDisk(c.Leader()) }},
		{"one after the other is told to stop, and started again", func() {
			for _, m := range c.Members {
				m.Stop()
				m.Start()
			}
		}},
		{"all are killed and started again", func() {
			for _, m := range c.Members {
				m.Kill()
			}
			c.Start()
		}},
		{"a member is replaced", func() { c.Replace(c.Leader()) }},
	}
}

// slowDisk makes each write-through of a process to its disk take 100 ms longer (strace), until the function that it
// returns is called. All that the process does takes longer meanwhile.
func slowDisk(t testing.TB, pid int) (end func()) {
	t.Helper()
	cmd := exec.Command(testserver.Need(t, "strace", "strace"), "-f", "-q", "-p", strconv.Itoa(pid), "-o", os.DevNull,
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=100000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testserver.Must(t, cmd.Start())
	return func() {
		cmd.Process.Signal(os.Interrupt) // it lets go of the process
		cmd.Wait()                       // ends by the signal
	}
}

// fillDisk fills a member's disk. A member that cannot write its log ends itself, so it can do no harm.
func (c *threeMembers) fillDisk(m *testserver.CellMember) {
	m.FillDisk()
	m.AwaitEnd()
	time.Sleep(quick)
	m.Start()
}
