//go:build soak

package interop

import (
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
	other    library
	address  string
	holdfast *peer
	peer     *peer
	server   *redis.Client
}

// TestRedisPy: Holdfast and redis-py exclude each other, and change nothing of each other's.
func TestRedisPy(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	other := redisPy(t)
	p := &pair{
		T: t, other: other, address: server.Addr,
		holdfast: holdfastItself.start(t, server.Addr), peer: other.start(t, server.Addr),
		server: connect(t, server.Addr),
	}
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

// exclude: while one has the lock the other does not get it, and gets it after the release.
func (p *pair) exclude(name string) {
	for _, turn := range [][2]*peer{{p.peer, p.holdfast}, {p.holdfast, p.peer}} {
		holder, other := turn[0], turn[1]
		holder.do("held", "lock %s %d", name, long.Milliseconds())
		other.do("busy", "lock %s %d", name, long.Milliseconds())
		p.server.PExpire(p.Context(), name, long/2)
		holder.do("ok", "extend %d", long.Milliseconds())
		if rest := p.rest(name); rest <= long/2 {
			p.Errorf("%s has not extended its lock: it ends in %v", holder.name, rest)
		}
		other.do("busy", "lock %s %d", name, long.Milliseconds())
		holder.do("ok", "unlock")
		other.do("held", "lock %s %d", name, long.Milliseconds())
		holder.do("busy", "lock %s %d", name, long.Milliseconds())
		other.do("ok", "unlock")
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

// late: a holder whose lock has expired, and which the other has, changes nothing of it.
func (p *pair) late(name string) {
	// Libraries do not renew; Holdfast does, unless it is stopped.
	p.peer.take(name, short)
	p.holdfast.take(name, long)
	p.unchanged(name, p.peer.loses)
	p.holdfast.do("ok", "unlock")

	p.holdfast.take(name, short)
	p.holdfast.signal(syscall.SIGSTOP)
	p.peer.take(name, long)
	p.unchanged(name, func() {
		p.holdfast.signal(syscall.SIGCONT)
		p.holdfast.loses()
	})
	p.peer.do("ok", "unlock")
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
	key := name + ":number"
	peers := []*peer{p.peer, p.holdfast, holdfastItself.start(p, p.address)}
	for _, peer := range peers {
		peer.tell("count %s %s %d", name, key, times)
	}
	for _, peer := range peers {
		peer.expect("ok", peer.answer())
	}
	if n, err := p.server.Get(p.Context(), key).Int(); n != len(peers)*times || err != nil {
		p.Errorf("the number is %d, %v after %d increments", n, err, len(peers)*times)
	}
}

// killed: when a holder has been killed, the other gets the lock after the TTL.
func (p *pair) killed(name string) {
	begin := time.Now()
	p.peer.take(name, short)
	p.peer.kill()
	p.holdfast.take(name, short)
	const rounding = 10 * time.Millisecond
	if took := time.Since(begin); took < short-rounding {
		p.Errorf("Holdfast has the lock %v after %s took it for %v", took, p.other.name, short)
	}
	next := p.other.start(p, p.address)
	for rest, before := p.rest(name), time.Minute; rest <= before; rest, before = p.rest(name), rest {
		next.do("busy", "lock %s %d", name, long.Milliseconds()) // until Holdfast has renewed
	}
	p.holdfast.kill()
	next.take(name, long)
}
