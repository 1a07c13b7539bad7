//go:build soak

package interop

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// brief is how long locks last that end in a test.
const brief = 3 * time.Second

// watchdogs: on every deployment both keep their locks for as long as they have them, beside each other.
func watchdogs(t *testing.T, all []*together) {
	var check, end []func()
	for _, c := range all {
		one, two := c.on(t).guarded(c.root + "watchdogs")
		check, end = append(check, one), append(end, two)
	}
	for until := time.Now().Add(3*brief + brief/3); time.Now().Before(until); time.Sleep(brief / 3) {
		for _, f := range check {
			f()
		}
	}
	for _, f := range end {
		f()
	}
}

// guarded takes locks in both languages. It returns what checks that they are held, and what ends them.
func (c *together) guarded(name string) (check, end func()) {
	java, holdfast := c.java.open(c, c.servers, brief), c.holdfast.open(c, c.servers, brief)
	kinds := []string{"mutex", "fair", "fenced", "spin", "read", "write"}
	for _, kind := range kinds {
		java.do("held", "lock %s %s %s/java/%s 0", kind, kind, name, kind)
		holdfast.do("held", "lock %s %s %s/go/%s 0", kind, kind, name, kind)
	}
	holdfast.do("held", "lock permit semaphore:1:1 %s/go/permit 0", name) // nothing renews those of Java
	for _, s := range []*service{java, holdfast} {
		s.do("held", "lock both read %s/both 0", name)
		s.do("held", "lock multi multi %s/%v/a,%s/%v/b 0", name, s.program == c.java, name, s.program == c.java)
	}
	check = func() {
		for _, kind := range kinds {
			wants := strings.Replace(kind, "read", "write", 1)
			java.do("busy", "lock h %s %s/go/%s 0", wants, name, kind)
			holdfast.do("busy", "lock h %s %s/java/%s 0", wants, name, kind)
		}
		java.do("busy", "lock h semaphore:1:1 %s/go/permit 0", name)
		for _, s := range []*service{java, holdfast} {
			s.do("busy", "lock h write %s/both 0", name)
			s.do("busy", "lock h mutex %s/%v/b 0", name, s.program != c.java)
		}
	}
	return check, func() {
		for _, kind := range append(kinds, "both", "multi") {
			java.do("ok", "end %s", kind)
			holdfast.do("ok", "end %s", kind)
		}
		holdfast.do("ok", "end permit")
	}
}

// expiring: a permit that Java has taken for a time is free when it is over, and Java's release of it says so.
func (c *together) expiring(name string) {
	java, holdfast := c.both()
	java.do("held", "lock h semaphore:1:1:1000 %s 0", name)
	holdfast.do("busy", "lock h semaphore:1:1 %s 0", name)
	holdfast.do("held", "lock h semaphore:1:1 %s -1", name)
	if answer := java.ask("end h"); !strings.HasPrefix(answer, "error ") {
		c.Errorf("Redisson answers %q when a permit is released that has ended", answer)
	}
	java.do("busy", "lock h semaphore:1:1 %s 50", name) // the other's was not released by that
	holdfast.do("ok", "end h")
	java.do("held", "lock h semaphore:1:1 %s -1", name)
	java.do("ok", "end h")
}

// outage is a service of a program that fails, and those of another that wait for what it holds, on one deployment.
type outage struct {
	*together
	holder  *service
	lives   *program
	kinds   []string
	waiters []*service // one for each kind
}

// outages: on every deployment, whoever waits gets the locks of a program that stands still, or is killed, of either
// language.
func outages(t *testing.T, all []*together) {
	java, holdfast := all[0].on(t).another(), startHoldfast(t)
	failing := []*program{java, holdfast}
	var both []*outage
	for _, c := range all {
		c = c.on(t)
		both = append(both,
			&outage{together: c, holder: java.open(t, c.servers, brief), lives: c.holdfast},
			&outage{together: c, holder: holdfast.open(t, c.servers, brief), lives: c.java})
	}
	kinds := []string{"mutex", "fair", "fenced", "spin", "read", "write"}
	for _, o := range both {
		o.begin(o.root+"stopped/", kinds)
	}
	fail(both, failing, func(p *program) { p.signal(syscall.SIGSTOP) })
	for _, o := range both {
		o.takeOver()
	}
	for _, p := range failing {
		p.signal(syscall.SIGCONT)
	}
	for _, o := range both {
		o.learn()
		o.end()
	}
	kinds = append(kinds, ofJava, "multi")
	for _, o := range both {
		o.begin(o.root+"dead/", kinds)
	}
	fail(both, failing, func(p *program) { p.kill() })
	for _, o := range both {
		o.takeOver()
		o.end()
	}
}

// begin has the one that is to fail take locks, and others wait for them.
func (o *outage) begin(name string, kinds []string) {
	o.Helper()
	if name += "java/"; o.lives == o.java {
		name += "go/"
	}
	o.kinds, o.waiters = kinds, nil
	for _, kind := range kinds {
		holds, wants := name+kind, name+kind
		if kind == "multi" {
			holds, wants = name+"a,"+name+"b", name+"b,"+name+"c"
		}
		o.holder.do("held", "lock %s %s %s 0", kind, kind, holds)
		b := o.lives.open(o, o.servers, brief)
		mine := kind
		switch kind {
		case "read":
			mine = "write"
		case ofJava:
			mine = "semaphore:1:1" // one that lasts until it is ended, however late that is
		}
		b.tell("lock h %s %s -1", mine, wants)
		o.waiters = append(o.waiters, b)
	}
}

// ofJava is a permit of Java's. It lasts for as long as it says, whoever lives.
const ofJava = "semaphore:1:1:3000"

// fail checks that everybody waits, and has something done to all that are to fail.
func fail(all []*outage, programs []*program, by func(*program)) {
	for _, o := range all {
		for i, b := range o.waiters {
			if o.kinds[i] != ofJava {
				b.silent()
			}
		}
	}
	for _, p := range programs {
		by(p)
	}
}

// takeOver checks that those who wait get the locks.
func (o *outage) takeOver() {
	o.Helper()
	for _, b := range o.waiters {
		b.expect("held")
	}
}

// learn checks that a program that goes on learns of its losses: Holdfast says that its locks are lost, Redisson notices when
// it releases them. Nothing has taken them away from the others by then.
func (o *outage) learn() {
	o.Helper()
	var lost []string
	for range o.kinds {
		if o.lives == o.java {
			lost = append(lost, o.holder.await(o.holder.events, "the events of what is lost"))
		}
	}
	for _, kind := range o.kinds {
		if o.lives == o.java {
			if !slices.Contains(lost, "lost "+kind) {
				o.Errorf("P2: Holdfast says %q, and not that %s is lost", lost, kind)
			}
			o.holder.do("lost", "end %s", kind)
		} else if answer := o.holder.ask("end %s", kind); !strings.Contains(answer, "IllegalMonitorStateException") {
			o.Errorf("Redisson answers %q when it releases a lock that it has lost", answer)
		}
	}
}

// end ends the locks that were taken over.
func (o *outage) end() {
	o.Helper()
	for _, b := range o.waiters {
		b.do("ok", "end h")
	}
}

// another starts another program with the version of Redisson.
func (c *together) another() *program {
	c.Helper()
	return startRedisson(c, strings.TrimPrefix(c.java.name, "Redisson "))
}

// deadFirst: behind the first of a fair queue who has died, waiters in Go do not ask again and again until its
// place has ended, as those in Java do; and then they are served. No test asks the same server.
func (c *together) deadFirst(name string) {
	const place = 3 * time.Second
	server := testserver.StartRedis(c, testserver.RedisOptions{})
	c.servers = "redis://" + server.Addr
	requests := func() (n int) {
		for _, found := range regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindAllStringSubmatch(server.Ask("INFO", "commandstats"), -1) {
			n, _ = strconv.Atoi(found[1])
		}
		return n
	}
	java := c.another()
	first := java.open(c, c.servers, watchdog, place.Milliseconds())
	_, eye := c.both()
	holder := c.holdfast.open(c, c.servers, brief) // the place lasts for so much longer
	holder.do("held", "lock h fair %s 0", name)
	first.tell("lock h fair %s -1", name)
	c.queued(eye, name, 2)
	var waiters []*service
	for i := range 3 {
		_, s := c.both()
		s.tell("lock h fair %s -1", name)
		c.queued(eye, name, 3+i)
		waiters = append(waiters, s)
	}
	killed := time.Now()
	java.kill()
	holder.do("ok", "end h")
	before, begin := requests(), time.Now()
	time.Sleep(time.Second)                                    // the lock is free, and nobody may take it yet
	polls := int(time.Since(begin)/(500*time.Millisecond)) + 2 // each half to whole second
	if n := requests() - before; n == 0 || n > polls*len(waiters) {
		c.Errorf("P7: behind a dead waiter %d waiters send %d requests, where they should poll %d times", len(waiters), n, polls)
	}
	if time.Since(killed) < place { // on a busy machine the place may be over
		for _, s := range waiters {
			s.silent()
		}
	}
	for _, s := range waiters {
		s.expect("held")
		s.do("ok", "end h")
	}
}
