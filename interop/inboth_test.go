//go:build soak

package interop

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inBoth is a program in Java and one in Go, which have the same locks on the same servers.
type inBoth struct {
	*testing.T
	servers  string
	root     string // what names begin with
	java     *program
	holdfast *program
	lasts    time.Duration // a session, or the TTL of a lock, that does not end in a test
	inTime   time.Duration // by when who waits must have been woken; 0: patience

	first, second *service // those of directions
}

// both opens a service in each language.
func (p *inBoth) both() (java, holdfast *service) {
	p.Helper()
	return p.java.open(p, p.servers, p.lasts), p.holdfast.open(p, p.servers, p.lasts)
}

// directions calls a function with a service of each language, either first. They are the same at each call.
func (p *inBoth) directions(f func(a, b *service)) {
	p.Helper()
	if p.first == nil {
		p.first, p.second = p.both()
	}
	f(p.first, p.second)
	f(p.second, p.first)
}

// queued waits until so many hold a lock or wait for it.
func (p *inBoth) queued(eye *service, name string, n int) {
	p.Helper()
	for end := time.Now().Add(patience); eye.ask("participants %s", name) != strconv.Itoa(n); {
		if time.Now().After(end) {
			p.Fatalf("%s never has %d participants", name, n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// waits has a service begin to wait for a lock. Mostly it waits when this returns.
func (p *inBoth) waits(waiter *service, lock string) {
	waiter.tell("lock %s -1", lock)
	time.Sleep(50 * time.Millisecond)
	waiter.silent()
}

// wakes checks that a service which waits for a lock gets it when another is told to end its own.
func (p *inBoth) wakes(waiter, holder *service, handle string) {
	p.Helper()
	waiter.silent()
	begin := time.Now()
	holder.do("ok", "end %s", handle)
	waiter.expect("held")
	if d := time.Since(begin); p.inTime > 0 && d > p.inTime {
		p.Errorf("P7: %v was not woken by %v: it has waited for %v", waiter, holder, d)
	}
}

// exclusions tests that each of these kinds excludes, and a multi lock.
func (p *inBoth) exclusions(kinds []string, name string) {
	for _, kind := range kinds {
		p.exclusion(kind, name+"/"+strings.ReplaceAll(kind, ":", "-"))
	}
	p.exclusion("multi", name+"/a,"+name+"/b")
}

// exclusion: one has the lock, the other does not get it at once nor later, and then is woken by the
// release.
func (p *inBoth) exclusion(kind, name string) {
	p.directions(func(a, b *service) {
		a.do("held", "lock h %s %s 0", kind, name)
		b.do("busy", "lock h %s %s 0", kind, name)
		b.do("busy", "lock h %s %s 50", kind, name)
		p.waits(b, "h "+kind+" "+name)
		p.wakes(b, a, "h")
		b.do("ok", "end h")
		a.do("held", "lock h %s %s 0", kind, name) // nothing is left of the refused ones
		a.do("ok", "end h")
	})
}

// permits: those of both languages add up.
func (p *inBoth) permits(name string) {
	java2, holdfast2 := p.both()
	p.directions(func(a, b *service) {
		a.do("held", "lock two semaphore:3:2 %s 0", name)
		b.do("held", "lock one semaphore:3:1 %s 0", name)
		for _, s := range []*service{a, b} {
			s.do("busy", "lock none semaphore:3:1 %s 0", name)
			s.do("busy", "lock none semaphore:3:1 %s 50", name)
		}
		for _, waiter := range []*service{java2, holdfast2} {
			waiter.tell("lock two semaphore:3:2 %s -1", name)
			b.do("ok", "end one")
			time.Sleep(50 * time.Millisecond)
			p.wakes(waiter, a, "two") // one is free, not two
			b.do("held", "lock one semaphore:3:1 %s -1", name)
			waiter.do("ok", "end two")
			a.do("held", "lock two semaphore:3:2 %s 0", name)
		}
		a.do("ok", "end two")
		b.do("ok", "end one")
		a.do("held", "lock all semaphore:3:3 %s 0", name)
		b.do("busy", "lock none semaphore:3:1 %s 0", name)
		a.do("ok", "end all")
	})
}

// multi: all or none of several locks, whichever the other has.
func (p *inBoth) multi(name string) {
	p.directions(func(a, b *service) {
		ab, bc := name+"/a,"+name+"/b", name+"/b,"+name+"/c"
		a.do("held", "lock h multi %s 0", ab)
		b.do("busy", "lock h multi %s 0", bc)
		b.do("busy", "lock h mutex %s/b 0", name)
		a.do("held", "lock h2 mutex %s/c 0", name) // b has left nothing
		a.do("ok", "end h2")
		p.waits(b, "h multi "+bc)
		p.wakes(b, a, "h")
		a.do("busy", "lock h multi %s 0", ab)
		a.do("held", "lock h mutex %s/a 0", name)
		a.do("ok", "end h")
		b.do("ok", "end h")
	})
}

// each has a service of each program do something.
func (p *inBoth) each(programs []*program, format string, args ...any) (services []*service) {
	p.Helper()
	for _, program := range programs {
		services = append(services, program.open(p, p.servers, 10*time.Second))
	}
	for _, s := range services {
		s.tell(format, args...)
	}
	return services
}

// counts has a service of each program increment a number under a lock, so many times, and others read it
// if the lock can be shared. It returns what awaits them, and checks the number then.
func (p *inBoth) counts(programs []*program, kind string, times int) func() {
	p.Helper()
	file := filepath.Join(p.TempDir(), "number")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		p.Fatal(err)
	}
	name := p.root + "crowd/" + kind
	if kind == "multi" {
		name += "/a," + name + "/b"
	}
	var services []*service
	if kind == "write" {
		services = p.each([]*program{p.java, p.holdfast}, "look read %s %s %d", name, file, times)
	}
	services = append(services, p.each(programs, "count %s %s %s %d", kind, name, file, times)...)
	return func() {
		p.Helper()
		for _, s := range services {
			s.finish()
		}
		if n, err := number(file); n != times*len(programs) || err != nil {
			p.Errorf("%s: the number is %d, %v after %d increments", kind, n, err, times*len(programs))
		}
	}
}

// crowds: programs under load, each kind of lock on a name of its own, and all kinds at the same time. Each increments a
// number so many times under a lock, or takes permits so often.
func (p *inBoth) crowds(programs []*program, kinds []string, times int, semaphores []string, takes int) {
	begin := time.Now()
	var finish []func()
	for _, kind := range kinds {
		finish = append(finish, p.counts(programs, kind, times))
	}
	for _, kind := range semaphores {
		for _, s := range p.each(programs, "crowd %s %scrowd/%s %s %d", kind, p.root, strings.ReplaceAll(kind, ":", "-"), p.TempDir(), takes) {
			finish = append(finish, s.finish)
		}
	}
	for _, f := range finish {
		f()
	}
	p.Logf("%d times each kind in %v", times*len(programs), time.Since(begin))
}
