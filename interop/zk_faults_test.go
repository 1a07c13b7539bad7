//go:build soak

package interop

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestCuratorFaults: what happens to one side, the other gets the lock, when the session has ended and
// not before.
func TestCuratorFaults(t *testing.T) {
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 200 * time.Millisecond})
	// The programs that are killed and stopped are no other's.
	languages := map[string]func(testing.TB) *program{"Curator": startCurator, "Holdfast": startHoldfast}
	java, holdfast := startCurator(t), startHoldfast(t)
	t.Run("faults", func(t *testing.T) {
		for name, start := range languages {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				other := java
				if name == "Curator" {
					other = holdfast
				}
				f := &fault{curator: &curator{inBoth{T: t, servers: server.Addrs()}, server}, victims: start(t), other: other, path: "/faults/" + name}
				f.cut("/cut")
				f.stopped("/stopped")
				f.killed("/killed")
			})
		}
	})
}

// fault is what happens to a program, beside one of the other language.
type fault struct {
	*curator
	victims, other *program
	path           string
}

// soon is how long the sessions are that end in a test.
const soon = 2 * time.Second

// passes checks that the other gets the lock that a victim holds, when the victim's session has ended:
// the victim did something last before begin.
func (f *fault) passes(other *service, kind string, begin time.Time) {
	f.Helper()
	other.expect("held")
	// ZooKeeper rounds the end of a session up to a tick.
	if took := time.Since(begin); took < soon/2 {
		f.Errorf("%s: %v has the lock %v after the fault, in a session of %v", kind, other, took, soon)
	}
}

// kinds are the locks of which a victim is deprived.
var kinds = []string{"mutex", "write", "single"}

// hold has a victim hold a lock of each kind, and one of the others wait for it, with another victim
// between them in the queue.
func (f *fault) hold(servers, path string) (victim, between *service, waiters []*service) {
	f.Helper()
	victim, between = f.victims.open(f, servers, soon), f.victims.open(f, servers, soon)
	eye := f.other.open(f, f.server.Addrs(), session)
	for i, kind := range kinds {
		path := path + "/" + kind
		victim.do("held", "lock %s %s %s 0", kind, kind, path)
		if i == 0 {
			between.tell("lock %s %s %s -1", kind, kind, path)
			f.queued(eye, path, 2)
		}
		w := f.other.open(f, f.server.Addrs(), session)
		w.tell("lock h %s %s -1", kind, path)
		waiters = append(waiters, w)
	}
	f.queued(eye, path+"/mutex", 3)
	return victim, between, waiters
}

// killed: kill -9 of a holder and of a waiter.
func (f *fault) killed(path string) {
	path = f.path + path
	_, _, waiters := f.hold(f.server.Addrs(), path)
	begin := time.Now()
	f.victims.kill()
	for i, w := range waiters {
		f.passes(w, kinds[i], begin)
		w.do("ok", "end h")
	}
}

// stopped: SIGSTOP of a holder and a waiter for longer than the session. The holder learns that it has
// lost its locks, and takes none away.
func (f *fault) stopped(path string) {
	path = f.path + path
	victim, between, waiters := f.hold(f.server.Addrs(), path)
	begin := time.Now()
	f.victims.signal(syscall.SIGSTOP)
	for i, w := range waiters {
		f.passes(w, kinds[i], begin)
	}
	f.victims.signal(syscall.SIGCONT)
	f.lost(victim)
	f.keeps(path, victim, between, waiters)
}

// cut: a holder and a waiter that reach no server.
func (f *fault) cut(path string) {
	path = f.path + path
	proxy := chaos.StartProxy(f, f.server.Members[0].Addr)
	victim, between, waiters := f.hold(proxy.Addr, path)
	begin := time.Now()
	proxy.Cut()
	if f.victims.name == "Holdfast" {
		f.lost(victim) // its own clock tells it
	}
	for i, w := range waiters {
		f.passes(w, kinds[i], begin)
	}
	proxy.Heal()
	if f.victims.name == "Curator" {
		f.lost(victim)
	}
	f.keeps(path, victim, between, waiters)
}

// lost checks that the victim is told of the end of its session.
func (f *fault) lost(victim *service) {
	f.Helper()
	if f.victims.name == "Curator" {
		victim.event("LOST")
		return
	}
	for range kinds {
		victim.await(victim.events, "a loss")
	}
}

// keeps checks that what a victim does late takes nothing from the others, whose locks they then give to
// the victims.
func (f *fault) keeps(path string, victim, between *service, waiters []*service) {
	f.Helper()
	late := "lost"
	if f.victims.name == "Curator" {
		late = "ok" // its release does not tell
	}
	for i, w := range waiters {
		victim.do(late, "end %s", kinds[i])
		f.busy(victim, kinds[i], path+"/"+kinds[i])
		between.silent()
		w.do("ok", "end h")
		if i == 0 {
			between.expect("held") // it waited on, in a session anew
			between.do("ok", "end mutex")
		}
		victim.do("held", "lock %s %s %s/%s -1", kinds[i], kinds[i], path, kinds[i])
		victim.do("ok", "end %s", kinds[i])
	}
}

// busy checks that a victim does not get a lock. That its session is over it may learn by that only.
func (f *fault) busy(victim *service, kind, path string) {
	f.Helper()
	end := time.Now().Add(patience)
	for {
		answer := victim.ask("lock %s %s %s 0", kind, kind, path)
		if answer == "busy" {
			return
		}
		if !strings.HasPrefix(answer, "error ") || time.Now().After(end) {
			f.Fatalf("%v answers %q, although the other has %s", victim, answer, path)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
