//go:build soak

package faulttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/redislock"
)

// Fail-overs are judged with 200 clients in four processes. Each client keeps a lock of its own, and
// takes one of a few dozen names again and again, for which others wait too.
const (
	clientsOfProcess = 50
	namesOfGroup     = 24
	keptTTL          = 30 * time.Second // longer than a fail-over takes, on a busy machine too
	usedTTL          = 4 * time.Second
	lateTTL          = 30 * time.Second
)

// clientsEnv is the environment variable with the settings of a process of clients.
const clientsEnv = "HOLDFAST_TEST_CLIENTS"

// clientsSettings say what the clients of a process do.
type clientsSettings struct {
	URL   string
	Group string // what all their names begin with: several processes may have the same
	First int    // the number of the first client in its group
}

// report is what a process of clients answers to a command.
type report struct {
	Wrong    []string // broken promises
	Took     time.Duration
	Leases   []leaseReport
	Holds    []faults.Hold
	Refused  int      // for want of acknowledgements
	Failures []string // why else
}

// leaseReport is what the holder says of a lease.
type leaseReport struct {
	Name  string
	Token holdfast.Token
	Lost  string // "": it is trusted
}

// clients are the clients of a process.
type clients struct {
	clientsSettings
	all    []*holdfast.Client
	kept   []*watched
	late   []*holdfast.Lease
	served []atomic.Int64
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	wrong []string
	holds []faults.Hold
}

// watched is a lease that is kept and watched.
type watched struct {
	*holdfast.Lease
	stop chan struct{}
	done chan struct{}
	hold faults.Hold // once done is closed
}

// obey runs a process of clients. It answers each command, a line, with a report.
func obey(settings string) {
	ctx, stop := context.WithCancel(context.Background())
	c := &clients{served: make([]atomic.Int64, clientsOfProcess), stop: stop}
	if err := json.Unmarshal([]byte(settings), &c.clientsSettings); err != nil {
		panic(err)
	}
	c.start(ctx)
	commands := map[string]func() report{"start": c.report, "served": c.allServed, "settle": c.settle, "late": c.takeLate, "look": c.look, "drop": c.drop, "end": c.end}
	answer := func(command string) {
		if err := json.NewEncoder(os.Stdout).Encode(commands[command]()); err != nil {
			panic(err)
		}
	}
	answer("start")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer(lines.Text())
	}
}

// start opens the clients, and begins their work.
func (c *clients) start(ctx context.Context) {
	c.all, c.kept = make([]*holdfast.Client, clientsOfProcess), make([]*watched, clientsOfProcess)
	var opened sync.WaitGroup
	places := make(chan struct{}, 10)
	for i := range c.all {
		places <- struct{}{}
		opened.Go(func() {
			defer func() { <-places }()
			var err error
			if c.all[i], err = holdfast.Open(ctx, c.URL); err != nil {
				panic(err)
			}
			if c.kept[i], err = c.keep(ctx, i); err != nil {
				panic(err)
			}
		})
	}
	opened.Wait()
	for i := range c.all {
		c.work.Go(func() { c.use(ctx, i) })
	}
}

// keep takes a client's own lock.
func (c *clients) keep(ctx context.Context, i int) (*watched, error) {
	lock := c.all[i].Mutex(fmt.Sprint(c.Group, "/own/", c.First+i), &holdfast.Options{TTL: keptTTL, RenewEvery: time.Second})
	lease, err := c.patiently(ctx, lock)
	if err != nil {
		return nil, err
	}
	w := &watched{Lease: lease, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold = faults.WatchEvery(lease, 20*time.Millisecond, w.stop, nil)
	}()
	return w, nil
}

// patiently acquires a lock, although replicas may be slow.
func (c *clients) patiently(ctx context.Context, lock *holdfast.Lock) (*holdfast.Lease, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		lease, err := lock.Acquire(ctx)
		if err == nil || time.Now().After(end) {
			return lease, err
		}
	}
}

// use takes one of the group's names again and again, until ctx ends. During a fail-over there must be
// errors.
func (c *clients) use(ctx context.Context, i int) {
	lock := c.all[i].Mutex(fmt.Sprint(c.Group, "/", (c.First+i)%namesOfGroup), &holdfast.Options{TTL: usedTTL})
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		stop := make(chan struct{})
		time.AfterFunc(40*time.Millisecond, func() { close(stop) })
		hold := faults.WatchEvery(lease, 10*time.Millisecond, stop, nil)
		c.note(hold)
		if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUncertain) {
			c.blame("P4: a release of %s: %v", lock.Name(), err)
		}
		c.served[i].Add(1)
	}
}

func (c *clients) note(h faults.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Who = fmt.Sprintf("process %d", os.Getpid())
	c.holds = append(c.holds, h)
}

func (c *clients) blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// report returns what there is to say since the last report.
func (c *clients) report() (r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Wrong, r.Holds, c.wrong, c.holds = c.wrong, c.holds, nil, nil
	return r
}

// allServed waits until each client has had its name twice more (P7).
func (c *clients) allServed() report {
	before := make([]int64, len(c.served))
	for i := range before {
		before[i] = c.served[i].Load()
	}
	began := time.Now()
	var stuck []int
	for i := range before {
		for c.served[i].Load() < before[i]+2 && time.Since(began) < time.Minute {
			time.Sleep(5 * time.Millisecond)
		}
		if c.served[i].Load() < before[i]+2 {
			stuck = append(stuck, c.First+i)
		}
	}
	if len(stuck) > 0 {
		c.blame("P7: these clients of %s have not had their names twice within a minute: %v", c.Group, stuck)
	}
	r := c.report()
	r.Took = time.Since(began)
	return r
}

// renewed renews a lease until it is renewed or lost (P2).
func (c *clients) renewed(lease *holdfast.Lease) leaseReport {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := lease.Renew(context.Background())
		lost := lease.Err()
		r := leaseReport{Name: lease.Name(), Token: lease.Token()}
		switch {
		case lost != nil:
			if r.Lost = lost.Error(); !errors.Is(lost, holdfast.ErrLost) {
				c.blame("P2: %s ended with %v", lease.Name(), lost)
			}
			return r
		case err == nil:
			return r
		case time.Now().After(end):
			c.blame("P2: %s is neither renewed nor lost: %v", lease.Name(), err)
			return r
		}
	}
}

// settle renews the lease that each client keeps, and takes those anew that are lost, for which the token
// must be higher (P3).
func (c *clients) settle() report {
	leases := make([]leaseReport, len(c.kept))
	var each sync.WaitGroup
	for i, w := range c.kept {
		each.Go(func() {
			leases[i] = c.renewed(w.Lease)
			if leases[i].Lost == "" {
				return
			}
			<-w.done
			c.note(w.hold)
			again, err := c.keep(context.Background(), i)
			if err != nil {
				c.blame("P5: %s was lost (%s), and cannot be taken again: %v", w.Name(), leases[i].Lost, err)
				return
			}
			if c.kept[i] = again; again.Token() <= w.Token() {
				c.blame("P3: token %d of %s comes after %d", again.Token(), w.Name(), w.Token())
			}
		})
	}
	each.Wait()
	r := c.report()
	r.Leases = leases
	return r
}

// takeLate takes a fresh name for each client, and keeps it without renewing it.
func (c *clients) takeLate() report {
	var each sync.WaitGroup
	var mu sync.Mutex
	refused, failures := 0, []string(nil)
	for i, client := range c.all {
		each.Go(func() {
			lock := client.Mutex(fmt.Sprint(c.Group, "/late/", c.First+i), &holdfast.Options{TTL: lateTTL, RenewEvery: -1})
			lease, err := lock.TryAcquire(context.Background())
			mu.Lock()
			defer mu.Unlock()
			short := (*redislock.UnacknowledgedError)(nil)
			switch {
			case err == nil:
				c.late = append(c.late, lease)
			case errors.As(err, &short):
				refused++
			default:
				failures = append(failures, err.Error())
			}
		})
	}
	each.Wait()
	r := c.look()
	r.Refused, r.Failures = refused, failures
	return r
}

// look says what the holders of late leases believe.
func (c *clients) look() report {
	r := c.report()
	for _, lease := range c.late {
		l := leaseReport{Name: lease.Name(), Token: lease.Token()}
		if err := lease.Err(); err != nil {
			l.Lost = err.Error()
		}
		r.Leases = append(r.Leases, l)
	}
	return r
}

// drop renews the late leases, and releases those that are not lost.
func (c *clients) drop() report {
	var leases []leaseReport
	for _, lease := range c.late {
		leases = append(leases, c.renewed(lease))
		_ = lease.Release() // it may be lost
	}
	c.late = nil
	r := c.report()
	r.Leases = leases
	return r
}

// end ends the work and releases all.
func (c *clients) end() report {
	c.stop()
	c.work.Wait()
	for i, w := range c.kept {
		close(w.stop)
		<-w.done
		c.note(w.hold)
		if err := w.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
			c.blame("P4: releasing %s: %v", w.Name(), err)
		}
		if err := c.all[i].Close(); err != nil {
			c.blame("closing client %d of %s: %v", c.First+i, c.Group, err)
		}
	}
	return c.report()
}

// group are processes of clients with the same names.
type group struct {
	testing.TB
	name      string
	processes []*clientsProcess
	holds     []faults.Hold // since the last judgement
}

// clientsProcess is one process, as the test sees it.
type clientsProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startGroups starts 200 clients. Half of them want their grants acknowledged by a replica. They end with
// the test.
func startGroups(t testing.TB, url string) []*group {
	t.Helper()
	all := []*group{startGroup(t, "plain", url), startGroup(t, "replicated", url+"?hf.replicas=1")}
	for _, g := range all {
		g.answers() // when its clients are open
	}
	return all
}

// startGroup starts two processes of clients.
func startGroup(t testing.TB, name, url string) *group {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g := &group{TB: t, name: name}
	for i := range 2 {
		settings, err := json.Marshal(clientsSettings{URL: url, Group: name, First: i * clientsOfProcess})
		if err != nil {
			t.Fatal(err)
		}
		p := &clientsProcess{cmd: exec.Command(self)}
		p.cmd.Env = append(os.Environ(), clientsEnv+"="+string(settings))
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
		t.Cleanup(func() {
			p.cmd.Process.Kill() // it may have ended
			p.cmd.Wait()         // it was killed
		})
		g.processes = append(g.processes, p)
	}
	return g
}

// tell gives all processes a command, and returns what they answer.
func (g *group) tell(command string) (all report) {
	g.Helper()
	for _, p := range g.processes {
		if _, err := fmt.Fprintln(p.in, command); err != nil {
			g.Fatal(err)
		}
	}
	return g.answers()
}

func (g *group) answers() (all report) {
	g.Helper()
	for _, p := range g.processes {
		var r report
		if err := p.out.Decode(&r); err != nil {
			g.Fatalf("a process of %s does not answer: %v", g.name, err)
		}
		for _, w := range r.Wrong {
			g.Errorf("%s: %s", g.name, w)
		}
		g.holds = append(g.holds, r.Holds...)
		all.Took = max(all.Took, r.Took)
		all.Leases = append(all.Leases, r.Leases...)
		all.Refused += r.Refused
		all.Failures = append(all.Failures, r.Failures...)
	}
	return all
}

// judge looks at the holds since the last judgement. No lease was trusted after its deadline (P2). Tokens
// grew (P3), and where replicas must acknowledge no two holds overlapped (P1), unless the fail-over was
// ordered: then two primaries grant for a while. It returns how many overlapped, and how many were lost.
func (g *group) judge(ordered bool) (overlaps, lost int) {
	g.Helper()
	found := faults.Overlaps(g.holds)
	wrong := faults.Late(g.holds)
	if !ordered {
		wrong = append(wrong, faults.Disorder(g.holds)...)
	}
	if !ordered && g.replicated() {
		wrong = append(wrong, found...)
	}
	if len(wrong) > 0 {
		g.Errorf("%s:\n%s", g.name, strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
	for _, h := range g.holds {
		if h.Lost != "" {
			lost++
		}
	}
	g.holds = nil
	return len(found), lost
}

// replicated reports whether the group's grants are acknowledged by a replica.
func (g *group) replicated() bool { return g.name == "replicated" }

// settled waits until all kept leases are renewed or lost. What is trusted must be in the store that the
// witness sees (P2). It returns how many were lost.
func (g *group) settled(witness *holdfast.Client) (lost int) {
	g.Helper()
	leases := g.tell("settle").Leases
	var asked sync.WaitGroup
	for _, l := range trusted(leases) {
		asked.Go(func() {
			info, err := witness.Inspect(g.Context(), l.Name)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != l.Token {
				g.Errorf("P2: %s is trusted with token %d, and the new primary shows %+v, %v", l.Name, l.Token, info, err)
			}
		})
	}
	asked.Wait()
	if lost = len(leases) - len(trusted(leases)); lost > 0 && g.replicated() {
		g.Errorf("%d holds that a replica had acknowledged were lost", lost)
	}
	return lost
}

// lateGrants lets each client ask for a name of its own, of which replicas do not hear. A client that
// wants them to acknowledge it gets an error that says that they do not.
func lateGrants(groups []*group) {
	for _, g := range groups {
		g.Helper()
		r := g.tell("late")
		switch {
		case !g.replicated() && len(trusted(r.Leases)) == 0:
			g.Errorf("no lease without replicas is trusted: %v", r.Failures)
		case g.replicated() && (len(r.Leases) > 0 || r.Refused == 0):
			g.Errorf("with replicas that hear of nothing %d leases are trusted, %d refused: %v", len(r.Leases), r.Refused, r.Failures)
		}
	}
}

// believers takes the names of late leases from the new primary, by a client of it. Their holders trust
// them all the same, and a guard stops them.
func believers(next *holdfast.Client, groups []*group) {
	for _, g := range groups {
		g.Helper()
		var second []*holdfast.Lease
		for _, l := range trusted(g.tell("look").Leases) {
			lease, err := next.Mutex(l.Name, &holdfast.Options{TTL: lateTTL}).TryAcquire(g.Context())
			if errors.Is(err, holdfast.ErrUncertain) {
				continue // its connection was lost
			}
			if err != nil {
				g.Errorf("the new primary cannot know %s, and says %v", l.Name, err)
				continue
			}
			second = append(second, lease)
		}
		first := map[string]leaseReport{}
		for _, l := range trusted(g.tell("look").Leases) {
			first[l.Name] = l
		}
		both := 0
		for _, lease := range second {
			if l, ok := first[lease.Name()]; ok && lease.Err() == nil {
				both++
				var guard fence.Gate
				if err := guard.Admit(lease.Token(), holdfast.Exclusive); err != nil {
					g.Error(err)
				}
				if err := guard.Admit(l.Token, holdfast.Exclusive); !errors.Is(err, fence.ErrStale) {
					g.Errorf("P3: the guard let the first holder of %s in: %v", l.Name, err)
				}
			}
		}
		if (both > 0) == g.replicated() {
			g.Errorf("%s: %d names have two holders that trust their leases", g.name, both)
		}
		g.Logf("%s: %d names had two holders at a time", g.name, both)
		g.Cleanup(func() {
			lost := 0
			for _, lease := range second {
				switch err := lease.Release(); {
				case errors.Is(err, holdfast.ErrLost): // no replica has acknowledged them
					lost++
				case err != nil:
					g.Error(err)
				}
			}
			if lost > 0 {
				g.Logf("%s: %d leases of second holders were lost", g.name, lost)
			}
		})
	}
}

// dropLate renews late leases. The new primary does not have them, so all holders learn that they have
// lost them (P2).
func dropLate(groups []*group) {
	for _, g := range groups {
		g.Helper()
		if renewed := trusted(g.tell("drop").Leases); len(renewed) > 0 {
			g.Errorf("P2: leases were renewed that the store does not have: %v", renewed)
		}
	}
}

// trusted returns those of the leases that are.
func trusted(leases []leaseReport) (those []leaseReport) {
	for _, l := range leases {
		if l.Lost == "" {
			those = append(those, l)
		}
	}
	return those
}
