//go:build soak

package interop

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TTLs of holds that nobody waits for, and of those that end in the test. Holdfast renews its own.
const (
	long  = time.Minute
	short = 2 * time.Second
)

// pair is Holdfast and another library, over one server.
type pair struct {
	*testing.T
	address  string
	holdfast *program
	peer     *peer
	server   *redis.Client
}

// side is either of the two, with a lock.
type side struct {
	name         string
	lock, unlock func() string // held or busy, ok or lost
}

func (p *pair) theirs(peer *peer, name string, ttl time.Duration) side {
	return side{peer.name,
		func() string { return peer.ask("lock %s %d", name, ttl.Milliseconds()) }, func() string { return peer.ask("unlock") }}
}

func (p *pair) open(ttl time.Duration) *service {
	p.Helper()
	return p.holdfast.open(p, "redis://"+p.address+"?hf.layout=setnx&hf.maxttl=1m", ttl)
}

func (p *pair) ours(name string, ttl time.Duration) side {
	p.Helper()
	s := p.open(ttl)
	return side{"Holdfast", func() string { return s.ask("lock h mutex %s 0", name) }, func() string { return s.ask("end h") }}
}

// TestRedisPy: Holdfast and redis-py exclude each other, and change nothing of each other's.
func TestRedisPy(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	p := &pair{T: t, address: server.Addr, holdfast: startHoldfast(t), peer: redisPy(t).start(t, server.Addr), server: connect(t, server.Addr)}
	p.exclude("excluded")
	p.late("late")
	p.count("counter")
	p.killed("killed")
}

func connect(t testing.TB, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { client.Close() })
	return client
}

// is checks an answer of a side.
func (p *pair) is(s side, got, want string) {
	p.Helper()
	if got != want {
		p.Fatalf("%s says %q, not %q", s.name, got, want)
	}
}

// take has a side ask until it has the lock.
func (p *pair) take(s side) {
	p.Helper()
	for end := time.Now().Add(time.Minute); s.lock() != "held"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("%s does not get its lock", s.name)
		}
	}
}

// exclude: while one has the lock the other does not get it, and gets it after the release.
func (p *pair) exclude(name string) {
	theirs, ours := p.theirs(p.peer, name, long), p.ours(name, long)
	for _, turn := range [][2]side{{theirs, ours}, {ours, theirs}} {
		holder, other := turn[0], turn[1]
		p.is(holder, holder.lock(), "held")
		p.is(other, other.lock(), "busy")
		p.is(holder, holder.unlock(), "ok")
		p.is(other, other.lock(), "held")
		p.is(holder, holder.lock(), "busy")
		p.is(other, other.unlock(), "ok")
	}
}

// rest returns how long the key stays.
func (p *pair) rest(name string) time.Duration {
	rest, err := p.server.PTTL(p.Context(), name).Result()
	if err != nil {
		p.Fatal(err)
	}
	return rest
}

// late: a holder whose lock has expired, and which the other has, changes nothing of it. Libraries do not renew;
// Holdfast does, unless it is stopped.
func (p *pair) late(name string) {
	ours := p.ours(name, long)
	p.take(p.theirs(p.peer, name, short))
	p.take(ours)
	p.unchanged(name, p.peer.loses)
	p.is(ours, ours.unlock(), "ok")

	theirs := p.theirs(p.peer, name, long)
	ours = p.ours(name, short)
	p.take(ours)
	p.holdfast.signal(syscall.SIGSTOP)
	p.take(theirs)
	p.unchanged(name, func() {
		p.holdfast.signal(syscall.SIGCONT)
		p.is(ours, ours.unlock(), "lost")
	})
	p.is(theirs, theirs.unlock(), "ok")
}

// unchanged checks that an act changes neither the value of the lock nor when it ends.
func (p *pair) unchanged(name string, act func()) {
	value := func() string {
		v, err := p.server.Get(p.Context(), name).Result()
		if err != nil {
			p.Fatal(err)
		}
		return v
	}
	end := func() (earliest, latest time.Time) {
		asked := time.Now()
		rest := p.rest(name)
		return asked.Add(rest), time.Now().Add(rest)
	}
	const rounding = 10 * time.Millisecond
	before := value()
	early, late := end()
	act()
	if earliest, latest := end(); earliest.After(late.Add(rounding)) || latest.Before(early.Add(-rounding)) {
		p.Errorf("the lock would have ended between %v and %v, and ends between %v and %v", early, late, earliest, latest)
	}
	if after := value(); after != before {
		p.Errorf("the lock was %q and is %q", before, after)
	}
}

// count: two clients of Holdfast and the other library increment a number, each by a read and a write.
func (p *pair) count(name string) {
	const times = 15
	file := filepath.Join(p.TempDir(), "number")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		p.Fatal(err)
	}
	p.peer.tell("count %s %s %d", name, file, times)
	services := []*service{p.open(long), p.open(long)}
	for _, s := range services {
		s.tell("count mutex %s %s %d", name, file, times)
	}
	p.peer.expect("ok", p.peer.answer())
	for _, s := range services {
		s.finish()
	}
	if n, err := number(file); n != 3*times || err != nil {
		p.Errorf("the number is %d, %v after %d increments", n, err, 3*times)
	}
}

// killed: when a holder has been killed, the other gets the lock after the TTL.
func (p *pair) killed(name string) {
	ours := p.ours(name, short)
	begin := time.Now()
	p.take(p.theirs(p.peer, name, short))
	p.peer.kill()
	p.take(ours)
	const rounding = 10 * time.Millisecond
	if took := time.Since(begin); took < short-rounding {
		p.Errorf("Holdfast has the lock %v after %s took it for %v", took, p.peer.name, short)
	}
	next := p.theirs(p.peer.start(p, p.address), name, long)
	for rest, before := p.rest(name), time.Minute; rest <= before; rest, before = p.rest(name), rest {
		p.is(next, next.lock(), "busy") // until Holdfast has renewed
	}
	p.holdfast.kill()
	p.take(next)
}
