//go:build soak

package interop

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// redissons are the versions that are tested: the newest, and the last one of those that need Java 8 only.
var redissons = []string{"4.7.0", "3.52.0"}

// startRedisson starts a program in Java, with a version of Redisson.
func startRedisson(t testing.TB, version string) *program {
	t.Helper()
	dir := testserver.NeedPeers(t)
	return startProgram(t, library{name: "Redisson " + version, command: func(string) *exec.Cmd {
		return inJavaWith(dir, filepath.Join("java", "redisson-"+version), "RedissonPeer")
	}})
}

// together is a server, or some, and the programs that use it.
type together struct{ inBoth }

func newTogether(t *testing.T, servers, root string, java, holdfast *program) *together {
	return &together{inBoth{T: t, servers: servers, root: root, java: java, holdfast: holdfast, lasts: watchdog, inTime: inTime}}
}

// watchdog is for how long locks last that do not end in a test.
const watchdog = 30 * time.Second

// inTime is by when who waits must have been woken, however busy the machine is. Without a message it takes a second in
// Go, and in Java as long as it was told that the lock lasts, which is the watchdog. See TestRedissonWakes.
const inTime = watchdog / 2

// deployment is one way to run Redis.
type deployment struct{ what, servers string }

// deployments are those on which Redisson and Holdfast are tested.
func deployments(t *testing.T) []deployment {
	t.Helper()
	return []deployment{
		{"single", "redis://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr},
		{"sentinel", "redis+sentinel://" + testserver.StartSentinels(t, testserver.SentinelOptions{Replicas: 1}).Addrs() + "/" + testserver.PrimaryName},
		{"cluster", "redis+cluster://" + testserver.StartCluster(t, testserver.ClusterOptions{}).Servers[0].Addr},
	}
}

// TestRedisson: Holdfast and Redisson have one lock, whatever its kind, in both directions: on one server, on a primary
// of sentinels and in a cluster, with both versions.
func TestRedisson(t *testing.T) {
	t.Parallel()
	servers, holdfast := deployments(t), startHoldfast(t)
	for _, version := range redissons {
		java := startRedisson(t, version)
		var all []*together
		for _, on := range servers {
			c := newTogether(t, on.servers, version+"/", java, holdfast)
			c.rows(on.what)
			all = append(all, c)
		}
		for name, test := range map[string]func(*testing.T, []*together){"watchdogs": watchdogs, "outages": outages} {
			t.Run("all/"+version+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, all)
			})
		}
	}
	t.Run("red", func(t *testing.T) {
		t.Parallel()
		var addresses []string
		for range 3 {
			addresses = append(addresses, testserver.StartRedis(t, testserver.RedisOptions{AOF: true}).Addr)
		}
		servers := "redlock://" + strings.Join(addresses, ",")
		var programs []*program
		for _, version := range redissons {
			java := startRedisson(t, version)
			c := newTogether(t, servers, version+"/", java, holdfast)
			c.exclusion("red", "n")
			programs = append(programs, java, holdfast)
		}
		c := newTogether(t, servers, "", programs[0], holdfast)
		c.counts(programs, "red", testserver.Long(15, 150))()
	})
}

// TestRedissonCrowd: four clients of Redisson, of both versions, and four of Holdfast under load: for each kind of lock
// 10,000 increments on one server, and a tenth of that on a primary of sentinels and in a cluster.
func TestRedissonCrowd(t *testing.T) {
	t.Parallel()
	testserver.TakeTurn(t)
	var programs []*program
	for _, version := range redissons {
		java, holdfast := startRedisson(t, version), startHoldfast(t)
		programs = append(programs, java, java, holdfast, holdfast)
	}
	for _, on := range deployments(t) {
		t.Run(on.what, func(t *testing.T) {
			times := testserver.Long(60, 1250)
			if on.what != "single" {
				times /= 10
			}
			newTogether(t, on.servers, "", programs[0], programs[2]).crowds(programs,
				[]string{"mutex", "fair", "fenced", "spin", "write", "multi", "semaphore:1:1", "counted:1:1"}, times,
				[]string{"semaphore:3:1", "semaphore:3:2", "counted:3:2"}, times/5)
		})
	}
}

// TestRedissonWakes: who waits hears of a release within 100 ms, of whichever language both are: in the median, for each
// kind whose releases are told. In a cluster waiters in Go hear of nothing, and poll that often.
func TestRedissonWakes(t *testing.T) {
	t.Parallel()
	testserver.TakeTurn(t)
	servers, holdfast := deployments(t), startHoldfast(t)
	for _, version := range redissons {
		java := startRedisson(t, version)
		for _, on := range servers {
			c := newTogether(t, on.servers, version+"/", java, holdfast)
			for _, kind := range []string{"mutex", "fair", "fenced", "write", "read", "semaphore:1:1", "counted:1:1", "latch"} {
				c.directions(func(a, b *service) { c.handsOver(a, b, on.what, kind) })
			}
		}
	}
}

// handsOver measures how long a waiter waits from when the holder is told to release.
func (c *together) handsOver(a, b *service, deployment, kind string) {
	c.Helper()
	const soon = 100 * time.Millisecond
	var took []time.Duration
	name := c.root + "hand-over/" + strings.ReplaceAll(kind, ":", "-")
	has, holds := "held", "lock h "+strings.Replace(kind, "read", "write", 1)+" "+name+" 0"
	waits, ends := "lock h "+kind+" "+name+" -1", "end h"
	if kind == "latch" {
		has, holds = "ok", "countdown create "+name+" 1"
		waits, ends = fmt.Sprintf("countdown await %s %d", name, watchdog.Milliseconds()), "countdown down "+name
	}
	for range 9 {
		a.do(has, "%s", holds)
		b.tell("%s", waits)
		time.Sleep(50 * time.Millisecond) // mostly it waits then
		b.silent()
		begin := time.Now()
		a.do("ok", "%s", ends)
		b.expect(has)
		took = append(took, time.Since(begin))
		if kind != "latch" {
			b.do("ok", "end h")
		}
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > soon {
		c.Errorf("P7: on %s, %s: %v hears of releases by %v after %v, more than %v: %v", deployment, kind, b, a, median, soon, took)
	}
	c.Logf("%s, %s: %v hears of %v after %v to %v", deployment, kind, b, a, took[0], took[len(took)-1])
}

// TestRedissonCommand: beside services in Java alone, the command lists their locks, shows who has a fair one and who waits,
// breaks a hold so that the next in Java has it, and finds the server good.
func TestRedissonCommand(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	url := "redis://" + testserver.StartRedis(t, testserver.RedisOptions{AOF: true}).Addr
	runs := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, append([]string{"--store", url + "?hf.layout=redisson"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	java := startRedisson(t, redissons[0])
	one, two := java.open(t, url, watchdog), java.open(t, url, watchdog)
	for _, lock := range []string{"mutex jobs/a", "fair jobs/fair", "fenced jobs/fenced", "read jobs/rw", "write jobs/w", "semaphore:3:2 jobs/permits"} {
		one.do("held", "lock %s %s 0", strings.Fields(lock)[1], lock)
	}
	two.do("held", "lock r read jobs/rw 0")
	two.tell("lock h fair jobs/fair -1")
	c := newTogether(t, url, "", java, startHoldfast(t))
	c.queued(c.holdfast.open(t, url, watchdog), "jobs/fair", 2)
	const thread = `Redisson [0-9a-f-]{36}, thread \d+`
	for _, c := range []struct{ command, says string }{
		{"ls", `jobs/a +exclusive +` + thread}, {"ls", `jobs/fenced +exclusive +` + thread}, {"ls", `jobs/rw +shared ×2 +` + thread},
		{"ls", `jobs/w +exclusive +` + thread}, {"ls", `jobs/permits +2 of 3 +permit [0-9a-f]{32}`}, {"ls", `jobs/fair .* 1\n`},
		{"show jobs/fair", `HOLDER(?s:.*)` + thread + ` .*ends in(?s:.*)WAITER(?s:.*)` + thread},
		{"doctor", `ok +access: .*(?s:.*)ok +lock: `},
	} {
		if out := runs(strings.Fields(c.command)...); !regexp.MustCompile(c.says).MatchString(out) {
			t.Errorf("%s does not say %q:\n%s", c.command, c.says, out)
		}
	}
	token := regexp.MustCompile(`"token": ?"?(\d+)`).FindStringSubmatch(runs("show", "jobs/fair", "-o", "json"))
	if token == nil {
		t.Fatal("no token is shown")
	}
	runs("break", "jobs/fair", "--token", token[1])
	two.expect("held")
	if answer := one.ask("end jobs/fair"); !strings.Contains(answer, "IllegalMonitorStateException") {
		t.Errorf("Redisson answers %q when a hold is released that was broken", answer)
	}
}

// on returns c for another test.
func (c *together) on(t *testing.T) *together {
	other := *c
	other.T = t
	return &other
}

// redissonKinds are those of which one service at a time has the lock.
var redissonKinds = []string{"mutex", "fair", "fenced", "spin", "write", "semaphore:1:1", "counted:1:1"}

// rows tests each row of the table in docs/from-redisson.md.
func (c *together) rows(deployment string) {
	tests := map[string]func(*together, string){
		"exclusion": func(c *together, name string) { c.exclusions(redissonKinds, name) }, "order": (*together).order, "tokens": (*together).tokens,
		"readers": (*together).readers, "downgrade": (*together).downgrade, "permits": func(c *together, name string) { c.permits(name) }, "expiring": (*together).expiring,
		"multi": func(c *together, name string) { c.multi(name) }, "latch": (*together).countDowns, "operator": (*together).operator, "reentry": (*together).reentry,
		"braces": (*together).braces, "refused": (*together).refused, "dead first": (*together).deadFirst,
	}
	if deployment == "cluster" {
		delete(tests, "braces")
	} else {
		delete(tests, "refused")
	}
	if deployment != "single" {
		delete(tests, "dead first")
	}
	for name, test := range tests {
		c.Run(deployment+"/"+c.root+name, func(t *testing.T) {
			t.Parallel()
			test(c.on(t), c.root+strings.ReplaceAll(name, " ", "-"))
		})
	}
}

// order: waiters of both languages get a fair lock in the order in which they came. Those that give up leave
// nothing.
func (c *together) order(name string) {
	_, eye := c.both()
	var queue []*service
	for range 3 {
		java, holdfast := c.both()
		queue = append(queue, java, holdfast)
	}
	gone1, gone2 := c.both()
	for i, s := range queue {
		s.tell("lock h fair %s -1", name)
		c.queued(eye, name, i+1)
		if i == 2 {
			gone1.do("busy", "lock h fair %s 100", name)
			gone2.do("busy", "lock h fair %s 100", name)
			c.queued(eye, name, i+1)
		}
	}
	queue[0].expect("held")
	for i, s := range queue[1:] {
		for _, later := range queue[i+2:] {
			later.silent()
		}
		c.wakes(s, queue[i], "h")
	}
	queue[len(queue)-1].do("ok", "end h")
	gone1.do("held", "lock h fair %s 0", name)
	gone1.do("ok", "end h")
	c.queued(eye, name, 0)
}

// tokens: those of a fenced lock grow by one, whoever has it.
func (c *together) tokens(name string) {
	last := 0
	c.directions(func(a, b *service) {
		for _, s := range []*service{a, b, b, a} {
			s.do("held", "lock h fenced %s -1", name)
			token, err := strconv.Atoi(s.ask("token h"))
			if err != nil || token != last+1 { // it is Redisson's counter
				c.Errorf("P3: %v has the token %d after %d, %v", s, token, last, err)
			}
			last = token
			s.do("ok", "end h")
		}
	})
}

// readers: readers of both languages share, and keep writers out until the last of them ends.
func (c *together) readers(name string) {
	third, fourth := c.both()
	c.directions(func(a, b *service) {
		for _, first := range []*service{a, b} {
			last := map[*service]*service{a: b, b: a}[first]
			a.do("held", "lock h read %s 0", name)
			b.do("held", "lock h read %s 0", name)
			third.do("busy", "lock h write %s 0", name)
			fourth.do("busy", "lock h write %s 50", name)
			third.tell("lock h write %s -1", name)
			first.do("ok", "end h")
			fourth.do("busy", "lock h write %s 50", name)
			c.wakes(third, last, "h")
			a.do("busy", "lock h read %s 50", name)
			fourth.tell("lock h read %s -1", name)
			time.Sleep(50 * time.Millisecond)
			c.wakes(fourth, third, "h")
			fourth.do("ok", "end h")
			third, fourth = fourth, third
		}
	})
}

// downgrade: a writer that becomes a reader lets in readers, and no writer before it ends. A reader in Java
// that waits is not told by Redisson's downgrade, and is by Holdfast's.
func (c *together) downgrade(name string) {
	java, other := c.both()
	c.directions(func(a, b *service) {
		a.do("held", "lock h write %s 0", name)
		b.do("busy", "lock r read %s 50", name)
		a.do("ok", "downgrade h")
		b.do("held", "lock r read %s 0", name)
		other.do("busy", "lock w write %s 50", name)
		other.tell("lock w write %s -1", name)
		b.do("ok", "end r")
		time.Sleep(50 * time.Millisecond)
		c.wakes(other, a, "h")
		java.tell("lock r read %s -1", name)
		time.Sleep(50 * time.Millisecond)
		java.silent()
		begin := time.Now()
		other.do("ok", "downgrade w")
		java.expect("held")
		if d := time.Since(begin); d > inTime {
			c.Errorf("P7: a reader in Java was not told of a downgrade: it has waited for %v", d)
		}
		java.do("ok", "end r")
		other.do("ok", "end w")
	})
}

// countDowns: who waits for a latch goes on when it is opened, whoever counts.
func (c *together) countDowns(name string) {
	java2, holdfast2 := c.both()
	c.directions(func(a, b *service) {
		a.do("ok", "countdown create %s 2", name)
		b.do("busy", "countdown create %s 2", name)
		b.do("2", "countdown count %s", name)
		b.do("busy", "countdown await %s 50", name)
		java2.tell("countdown await %s %d", name, inTime.Milliseconds())
		holdfast2.tell("countdown await %s %d", name, inTime.Milliseconds())
		b.do("ok", "countdown down %s", name)
		time.Sleep(50 * time.Millisecond)
		java2.silent()
		holdfast2.silent()
		a.do("ok", "countdown down %s", name)
		java2.expect("ok")
		holdfast2.expect("ok")
		b.do("0", "countdown count %s", name)
		b.do("ok", "countdown await %s %d", name, inTime.Milliseconds())
	})
}

// operator: each can end the other's holds. Holdfast's holder learns of it, Redisson's does not.
func (c *together) operator(name string) {
	java, holdfast := c.java.open(c, c.servers, watchdog), c.holdfast.open(c, c.servers, brief)
	java.do("held", "lock h mutex %s 0", name)
	holdfast.do("1", "participants %s", name)
	holdfast.do("ok", "force %s", name)
	holdfast.do("free", "force %s", name)
	holdfast.do("held", "lock h mutex %s 0", name)
	if answer := java.ask("end h"); !strings.Contains(answer, "IllegalMonitorStateException") {
		c.Errorf("Redisson answers %q when a hold is released that was broken", answer)
	}
	java.do("ok", "force %s", name)
	java.do("held", "lock h mutex %s 0", name)
	holdfast.event("lost h")
	java.do("ok", "end h")
	holdfast.do("lost", "end h")
}

// reentry: a lock that a thread in Java has twice is free when it has released it twice.
func (c *together) reentry(name string) {
	java, holdfast := c.both()
	for _, kind := range []string{"mutex", "fair", "fenced", "spin"} {
		name := name + "/" + kind
		java.do("held", "lock one %s %s 0", kind, name)
		java.do("held", "lock two %s %s 0", kind, name)
		holdfast.do("1", "participants %s", name)
		java.do("ok", "end one")
		holdfast.do("busy", "lock h %s %s 50", kind, name)
		holdfast.tell("lock h %s %s -1", kind, name)
		time.Sleep(50 * time.Millisecond)
		c.wakes(holdfast, java, "two")
		holdfast.do("ok", "end h")
	}
}

// braces: names with braces, whatever Redisson makes of them.
func (c *together) braces(name string) {
	for i, braced := range []string{"{x}y", "x{}y", "x{y", "x}y", "x}y{z}", "{}"} {
		for _, kind := range redissonKinds {
			c.exclusion(kind, fmt.Sprint(name, i, braced, kind))
		}
		c.exclusion("multi", fmt.Sprint(name, i, braced, "/a,", name, i, braced, "/b"))
		c.countDowns(fmt.Sprint(name, i, braced))
	}
}

// refused: names with a hash tag are of use in a cluster. Others with braces are refused by Holdfast, because Redisson
// takes the lock and cannot release it, or waits for ever.
func (c *together) refused(name string) {
	for _, kind := range redissonKinds {
		c.exclusion(kind, name+"{"+kind+"}")
	}
	for i, braced := range []string{"x{}y", "x{y", "x}y{z}", "{}{y}"} {
		_, holdfast := c.both()
		for _, kind := range append(slices.Clone(redissonKinds), "read", "multi") {
			name := fmt.Sprint(name, i, braced)
			if kind == "multi" {
				name += ",other"
			}
			if answer := holdfast.ask("lock h %s %s 0", kind, name); !strings.Contains(answer, "cannot be the name") {
				c.Errorf("%s of %q in a cluster: %s", kind, name, answer)
			}
		}
	}
}
