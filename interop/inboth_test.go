//go:build soak

package interop

import (
	"os"
	"path/filepath"
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
}

// session is how long sessions of ZooKeeper are that do not end in a test.
const session = 4 * time.Second

// both opens a service in each language.
func (p *inBoth) both() (java, holdfast *service) {
	p.Helper()
	return p.java.open(p, p.servers, p.lasts), p.holdfast.open(p, p.servers, p.lasts)
}

// directions calls a function with a service of each language, either first.
func (p *inBoth) directions(f func(a, b *service)) {
	p.Helper()
	java, holdfast := p.both()
	f(java, holdfast)
	f(holdfast, java)
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
