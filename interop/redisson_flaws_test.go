//go:build soak

package interop

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRedissonFlaws shows what docs/from-redisson.md says of Redisson, by the real one. A version in which one of these
// fails has mended it: then the page is wrong.
func TestRedissonFlaws(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	holdfast := startHoldfast(t)
	for _, version := range redissons {
		java := startRedisson(t, version)
		for name, test := range map[string]func(*flaw, string){
			"silent loss": (*flaw).silentLoss, "cut off": (*flaw).cutOff, "busy behind the dead": (*flaw).busyBehindDead,
			"lease of a multi lock": (*flaw).multiLease, "watchdog of a writer": (*flaw).writersWatchdog,
			"token of a stranger": (*flaw).strangersToken, "kinds": (*flaw).kinds, "TTL adds up": (*flaw).ttlAddsUp,
			"silent downgrade": (*flaw).silentDowngrade, "spin unlock": (*flaw).spinUnlock,
			"TTL of readers": (*flaw).readersTTL, "dead reader": (*flaw).deadReader,
			"deleted latch": (*flaw).deletedLatch,
			"lost message":  (*flaw).lostMessage, "braces in a cluster": (*flaw).bracesInCluster,
			"head of the line": (*flaw).headOfLine, "upgrade": (*flaw).upgrade, "try waits": (*flaw).tryWaits,
			"TTL of a reader in Go": (*flaw).readersRenewal, "evicted": (*flaw).evicted, "release of none": (*flaw).releaseOfNone,
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := newTogether(t, "redis://"+server.Addr, "", java, holdfast)
				test(&flaw{*c, server}, version+"-"+strings.ReplaceAll(name, " ", "-"))
			})
		}
	}
}

// flaw is a server beside the programs.
type flaw struct {
	together
	server *testserver.Redis
}

// two opens two services of Redisson and one of Holdfast.
func (f *flaw) two() (java1, java2, holdfast *service) {
	f.Helper()
	java1, holdfast = f.both()
	return java1, f.java.open(f, f.servers, f.lasts), holdfast
}

// pttl returns for how many milliseconds a key lasts.
func (f *flaw) pttl(key string) int {
	f.Helper()
	ms, err := strconv.Atoi(f.server.Ask("PTTL", key))
	if err != nil {
		f.Fatal(err)
	}
	return ms
}

// quiet checks that a service says nothing for a while: it has no answer, and there is no event.
func (f *flaw) quiet(s *service, during time.Duration) {
	f.Helper()
	select {
	case answer := <-s.answers:
		f.Errorf("%v says %q", s, answer)
	case event := <-s.events:
		f.Errorf("%v tells of %q", s, event)
	case <-time.After(during):
	}
}

// asleep tells a service in Java to wait for something of a name, and returns when it sleeps: it has been refused, has
// subscribed, and has been refused again. What is done from then on it does not find by itself.
func (f *flaw) asleep(java *service, name, format string, args ...any) {
	f.Helper()
	conn, err := net.Dial("tcp", f.server.Addr)
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience)) // reading fails if this does
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		f.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // from now on all commands are told
	java.tell(format, args...)
	for subscribed := false; lines.Scan(); {
		switch line := lines.Text(); {
		case strings.Contains(line, `"SUBSCRIBE"`) && strings.Contains(line, name):
			subscribed = true
		case subscribed && strings.Contains(line, `"`+name+`"`):
			return
		}
	}
	f.Fatalf("%v does not sleep: %v", java, lines.Err())
}

// fails checks that a service answers with an error.
func (f *flaw) fails(s *service, with, format string, args ...any) {
	f.Helper()
	if answer := s.ask(format, args...); !strings.HasPrefix(answer, "error ") || !strings.Contains(answer, with) {
		f.Errorf("%v answers %q, and no error with %q", s, answer, with)
	}
}

// silentLoss: the key of a lock is deleted. Redisson tells nobody; Holdfast does.
func (f *flaw) silentLoss(name string) {
	java, holdfast := f.java.open(f, f.servers, brief), f.holdfast.open(f, f.servers, brief)
	java.do("held", "lock h mutex %s/java 0", name)
	holdfast.do("held", "lock h mutex %s/go 0", name)
	f.server.Ask("DEL", name+"/java", name+"/go")
	holdfast.event("lost h")
	f.quiet(java, brief)
	_, other := f.both()
	other.do("held", "lock h mutex %s/java 0", name)
	f.quiet(java, brief/2)
	f.fails(java, "IllegalMonitorStateException", "end h")
	holdfast.do("lost", "end h")
}

// cutOff: the connections of both are cut for longer than the TTL.
func (f *flaw) cutOff(name string) {
	proxy := chaos.StartProxy(f, f.server.Addr)
	way := "redis://" + proxy.Addr
	java, holdfast := f.java.open(f, way, brief), f.holdfast.open(f, way, brief)
	java.do("held", "lock h mutex %s/java 0", name)
	holdfast.do("held", "lock h mutex %s/go 0", name)
	proxy.Cut()
	_, other := f.both()
	other.do("held", "lock 1 mutex %s/java -1", name)
	other.do("held", "lock 2 mutex %s/go -1", name)
	holdfast.event("lost h")
	f.quiet(java, brief)
}

// busyBehindDead: two waiters of a fair lock ask without pause while the first of the queue, who has died, has its place,
// and nobody gets the lock, which is free.
func (f *flaw) busyBehindDead(name string) {
	server := testserver.StartRedis(f, testserver.RedisOptions{})
	f.servers = "redis://" + server.Addr
	died := f.another()
	first := died.open(f, f.servers, watchdog, 5000)
	java1, java2, eye := f.two()
	holder := f.holdfast.open(f, f.servers, brief)
	holder.do("held", "lock h fair %s 0", name)
	for i, s := range []*service{first, java1, java2} {
		s.tell("lock h fair %s -1", name)
		f.queued(eye, name, 2+i)
	}
	died.kill()
	holder.do("ok", "end h")
	time.Sleep(brief) // for so long, at most, they wait as they were told
	calls := func() int {
		found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(server.Ask("INFO", "commandstats"))
		n, _ := strconv.Atoi(found[1])
		return n
	}
	before, begin := calls(), time.Now()
	f.quiet(java1, time.Second)
	f.quiet(java2, 0)
	if n := calls() - before; n < 50 || server.Ask("EXISTS", name) != "0" {
		f.Errorf("two waiters behind a dead one ask %d times in %v", n, time.Since(begin))
	}
	for _, s := range []*service{java1, java2} {
		s.expect("held")
		s.do("ok", "end h")
	}
}

// multiLease: a multi lock that does not get all its locks at once lasts a thousand times as long as it was told to, in
// seconds.
func (f *flaw) multiLease(name string) {
	java, holdfast := f.both()
	holdfast.do("held", "lock h mutex %s/b 0", name)
	java.tell("lease h multi %s/a,%s/b 5", name, name)
	time.Sleep(6 * time.Second) // a round is at most as long as the lock is to last
	java.silent()
	holdfast.do("ok", "end h")
	java.expect("held")
	if ms := f.pttl(name + "/a"); ms < 1_000_000 {
		f.Errorf("a lock of five seconds lasts %d ms", ms)
	}
	java.do("ok", "end h")
}

// writersWatchdog: a writer that also reads, and has read, is renewed no more.
func (f *flaw) writersWatchdog(name string) {
	java, other := f.java.open(f, f.servers, brief), f.holdfast.open(f, f.servers, brief)
	java.do("held", "lock w write %s 0", name)
	java.do("held", "lock r read %s 0", name)
	java.do("ok", "end r")
	other.do("held", "lock h write %s -1", name)
	f.fails(java, "IllegalMonitorStateException", "end w")
	other.do("ok", "end h")
}

// strangersToken: a fenced lock whose hash has no end is granted to whoever asks, with the token -1. And who asks for a
// lease gets a watchdog.
func (f *flaw) strangersToken(name string) {
	java, holdfast := f.both()
	f.server.Ask("HSET", name, "00000000-0000-4000-8000-000000000000:1", "1")
	holdfast.do("busy", "lock h fenced %s 0", name)
	java.do("held", "lock h fenced %s 0", name)
	java.do("-1", "token h")
	java.do("held", "lease l fenced %s/lease 5", name)
	if ms := f.pttl(name + "/lease"); ms < 20_000 {
		f.Errorf("a lock of five seconds lasts %d ms", ms)
	}
}

// kinds: two kinds of locks of one name are held at the same time.
func (f *flaw) kinds(name string) {
	java1, java2, holdfast := f.two()
	java1.do("held", "lock h mutex %s 0", name)
	f.fails(holdfast, "another kind of lock", "lock h read %s 0", name)
	java2.do("held", "lock h read %s 0", name)
}

// ttlAddsUp: each entry of a writer adds a whole TTL to that of the lock.
func (f *flaw) ttlAddsUp(name string) {
	java, _ := f.both()
	java.do("held", "lock a write %s 0", name)
	java.do("held", "lock b write %s 0", name)
	if ms := f.pttl(name); ms < 50_000 {
		f.Errorf("a lock of 30 s that was taken twice lasts %d ms", ms)
	}
	java.do("ok", "end b")
	java.do("ok", "end a")
}

// silentDowngrade: readers that wait are not told that a writer has become a reader.
func (f *flaw) silentDowngrade(name string) {
	java1, java2, holdfast := f.two()
	java1.do("held", "lock h write %s 0", name)
	f.asleep(java2, name, "lock h read %s -1", name)
	java1.do("ok", "downgrade h")
	f.quiet(java2, time.Second)
	holdfast.do("held", "lock h read %s 0", name) // it could have it, too
	holdfast.do("ok", "end h")
	java1.do("ok", "end h")
	java2.expect("held")
	java2.do("ok", "end h")
}

// spinUnlock: the release of a spin lock does not wake who waits for the lock.
func (f *flaw) spinUnlock(name string) {
	java1, java2, holdfast := f.two()
	java1.do("held", "lock h spin %s 0", name)
	f.asleep(java2, name, "lock h mutex %s -1", name)
	java1.do("ok", "end h")
	f.quiet(java2, time.Second)
	holdfast.do("held", "lock h spin %s 0", name)
	holdfast.do("ok", "end h") // which does
	java2.expect("held")
	java2.do("ok", "end h")
}

// readersTTL: a reader that renews sets the TTL of all readers to its own watchdog. When it dies, a writer is let in beside
// a reader that has its hold for a minute.
func (f *flaw) readersTTL(name string) {
	java, holdfast := f.both()
	died := f.another()
	java.do("held", "lease r read %s 60", name)
	died.open(f, f.servers, brief).do("held", "lock r read %s 0", name)
	for end := time.Now().Add(patience); f.pttl(name) > int(brief.Milliseconds()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatal("it does not renew")
		}
	}
	died.kill()
	holdfast.do("held", "lock w write %s -1", name)
	f.quiet(java, 0)
	f.fails(java, "IllegalMonitorStateException", "end r")
	holdfast.do("ok", "end w")
}

// readersRenewal: a reader in Go whose hold lasts for longer than Redisson's watchdog renews within it, so no writer is
// let in when a reader in Java has renewed, and died.
func (f *flaw) readersRenewal(name string) {
	_, writer := f.both()
	holdfast := f.holdfast.open(f, f.servers, 6*watchdog)
	holdfast.do("held", "lock r read %s 0", name)
	died := f.another()
	died.open(f, f.servers, watchdog).do("held", "lock r read %s 0", name)
	until := func(what string, reached func(ttl int) bool) {
		f.Helper()
		for end := time.Now().Add(patience); !reached(f.pttl(name)); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				f.Fatal(what, " does not renew")
			}
		}
	}
	mostOfJava := int(watchdog.Milliseconds())
	until("Redisson", func(ttl int) bool { return ttl <= mostOfJava })
	died.kill()
	until("Holdfast", func(ttl int) bool { return ttl > mostOfJava || ttl < 0 })
	writer.do("busy", "lock w write %s 0", name)
	holdfast.do("ok", "end r")
}

// evicted: a waiter of a fair lock that waits for longer than its place lasts loses the place to whoever comes next.
func (f *flaw) evicted(name string) {
	first := f.java.open(f, f.servers, brief, 500)
	next, _ := f.both()
	holder := f.holdfast.open(f, f.servers, brief) // the place lasts for so much longer
	holder.do("held", "lock h fair %s 0", name)
	first.tell("lock h fair %s -1", name)
	f.queued(holder, name, 2)
	f.queued(holder, name, 1) // its place has ended
	next.tell("lock h fair %s -1", name)
	f.queued(holder, name, 2)
	holder.do("ok", "end h")
	next.expect("held")
	first.silent()
	next.do("ok", "end h")
	first.expect("held")
}

// releaseOfNone: a release of permits of a semaphore that was deleted makes one of as many.
func (f *flaw) releaseOfNone(name string) {
	java, holdfast := f.both()
	for _, s := range []*service{java, holdfast} {
		s.do("held", "lock h counted:3:2 %s 0", name)
		f.server.Ask("DEL", name)
	}
	f.fails(holdfast, "no semaphore", "end h")
	java.do("ok", "end h")
	if free := f.server.Ask("GET", name); free != "2" {
		f.Errorf("%q permits are free", free)
	}
}

// deadReader: in 3.52 the renewals of one reader keep the hold of another that has died; 4.7 has mended it.
func (f *flaw) deadReader(name string) {
	java := f.java.open(f, f.servers, brief)
	died := f.another()
	died.open(f, f.servers, brief).do("held", "lock r read %s 0", name)
	dead := strings.Fields(strings.ReplaceAll(f.server.Ask("HKEYS", name), "mode", ""))
	if len(dead) != 1 {
		f.Fatalf("the readers are %q", dead)
	}
	key := "{" + name + "}:" + dead[0] + ":rwlock_timeout:1"
	java.do("held", "lock r read %s 0", name)
	died.kill()
	time.Sleep(2 * brief)
	kept, want := f.pttl(key) > 0, strings.Contains(f.java.name, "3.52")
	if kept != want {
		f.Errorf("%s keeps the hold of a dead reader: %v", f.java.name, kept)
	}
	java.do("ok", "end r")
}

// deletedLatch: who waits for a latch whose key is deleted waits on, in Redisson. Holdfast tells, if it is who deletes.
func (f *flaw) deletedLatch(name string) {
	java, holdfast := f.both()
	java.do("ok", "countdown create %s 1", name)
	f.asleep(java, name, "countdown await %s 600000", name)
	holdfast.tell("countdown await %s 600000", name)
	f.server.Ask("DEL", name)
	holdfast.expect("ok")
	f.quiet(java, 2*time.Second)
	f.server.Ask("PUBLISH", "redisson_countdownlatch__channel__{"+name+"}", "0")
	java.expect("ok")

	java.do("ok", "countdown create %s 1", name)
	f.asleep(java, name, "countdown await %s 600000", name)
	holdfast.do("ok", "countdown delete %s", name)
	java.expect("ok")
}

// lostMessage: who waits for permits, and is not told of them, waits on, in Redisson.
func (f *flaw) lostMessage(name string) {
	java, holdfast := f.both()
	f.server.Ask("SET", name, "0")
	f.asleep(java, name, "lock h counted:3:2 %s -1", name)
	holdfast.tell("lock h counted:3:2 %s -1", name)
	f.server.Ask("SET", name, "2")
	holdfast.expect("held")
	f.server.Ask("SET", name, "2")
	f.quiet(java, 2*time.Second)
	f.server.Ask("PUBLISH", "redisson_sc:{"+name+"}", "2")
	java.expect("held")
}

// headOfLine: one master of a cluster is silent. Redisson renews the locks of one hash slot after the other, so those of
// other masters end too, while their holders live; Holdfast's do not.
func (f *flaw) headOfLine(name string) {
	cluster := testserver.StartCluster(f, testserver.ClusterOptions{})
	silent := cluster.Servers[0]
	f.servers = "redis+cluster://" + cluster.Servers[1].Addr
	java, holdfast := f.java.open(f, f.servers, brief), f.holdfast.open(f, f.servers, brief)
	masters := map[string]*testserver.Redis{} // of the locks that are there, by what their names end with
	for i := range 24 {
		for _, s := range []*service{java, holdfast} {
			lock := fmt.Sprintf("%s/%d/%s", name, i, strings.Fields(s.String())[0])
			s.do("held", "lock %d mutex %s 0", i, lock)
			if master := cluster.Master(lock); master != silent {
				masters[lock] = master
			}
		}
	}
	silent.Ask("CLIENT", "PAUSE", strconv.FormatInt(patience.Milliseconds(), 10))
	lost := func(of *service) (lost int) {
		for lock, master := range masters {
			if strings.HasSuffix(lock, strings.Fields(of.String())[0]) && master.Ask("EXISTS", lock) == "0" {
				lost++
			}
		}
		return lost
	}
	begin := time.Now()
	for ; lost(java) == 0 || time.Since(begin) < 2*brief; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > patience/2 {
			f.Fatal("Redisson keeps the locks of the other masters")
		}
	}
	if n := lost(holdfast); n > 0 {
		f.Errorf("P1: Holdfast has lost %d locks of masters that serve it", n)
	}
	f.quiet(java, 0)
}

// upgrade: a reader that wants to write waits for itself, without an end.
func (f *flaw) upgrade(name string) {
	java, _ := f.both()
	java.do("held", "lock r read %s 0", name)
	java.do("busy", "lock w write %s 500", name)
	java.do("ok", "end r")
}

// tryWaits: the method that tries a fenced lock once waits for it.
func (f *flaw) tryWaits(name string) {
	java, holdfast := f.both()
	holdfast.do("held", "lock h fenced %s 0", name)
	java.tell("trytoken h %s", name)
	f.quiet(java, time.Second)
	holdfast.do("ok", "end h")
	java.expect("held")
	java.do("ok", "end h")
}

// bracesInCluster: Redisson takes a lock that it cannot release, because the channel is in another slot.
func (f *flaw) bracesInCluster(string) {
	cluster := testserver.StartCluster(f, testserver.ClusterOptions{})
	f.servers = "redis+cluster://" + cluster.Servers[0].Addr
	java, _ := f.both()
	java.do("held", "lock h mutex a{}b 0")
	f.fails(java, "CROSSSLOT", "end h")
	f.fails(java, "", "lock h fair a{b 0")
}
