//go:build soak

package zklock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// TestDirectories: a client that alone uses a name watches its directory, and reads it no more. The watch goes
// with the directory, or when the name is not used for a while.
func TestDirectories(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	pairs := func(name string) {
		for range 4 {
			release(t, c, take(t, c, request(name)))
		}
	}
	pairs("one")
	pairs("two")
	eventually(t, "both directories are watched", func() bool { return watches(t, x.Members[0]) == 2 })
	java.must(zk.Delete("/one", zk.AnyVersion))
	eventually(t, "one of them is watched", func() bool { return watches(t, x.Members[0]) == 1 })
	pairs("one")
	eventually(t, "both are watched again", func() bool { return watches(t, x.Members[0]) == 2 })
	g := take(t, c, request("one"))
	c.mu.Lock()
	s := c.records[ownerKey{g.Name, g.Owner}].session
	now := c.clock.Now()
	oldest, ok := s.forgetDirectoriesLocked(now.Add(-time.Minute))
	s.forgetDirectoriesLocked(now)
	left := len(s.directories)
	c.mu.Unlock()
	if !ok || oldest > now || now.Sub(oldest) > time.Minute || left != 0 {
		t.Errorf("P9: %d directories are left; the oldest was used %v ago (%v)", left, now.Sub(oldest), ok)
	}
	release(t, c, g)
	eventually(t, "none is watched", func() bool { return watches(t, x.Members[0]) == 0 })
	for i := range knownDirectories + 10 {
		s.isNew(fmt.Sprint("/many/", i))
	}
	if n := len(s.directories); n > knownDirectories {
		t.Errorf("P9: %d directories are remembered", n)
	}
}

// TestNumbersOfReaped: the server removes directories that are empty all the time, while two clients use one,
// alone for a while or in turns. Numbers begin anew each time, and never let two hold the name.
func TestNumbersOfReaped(t *testing.T) {
	x := fixture{testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, MaxSession: time.Minute, Containers: time.Millisecond})}
	var holders, predicted, anew atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		c := x.open(t)
		all.Go(func() {
			for range testserver.Long(300, 1000) {
				r := request("reaped")
				for _, s := range c.sessions {
					if s.predicts("/reaped") {
						predicted.Add(1)
					}
				}
				g, err := c.Enqueue(t.Context(), r)
				if errors.Is(err, driver.ErrHeld) {
					g, err = await(t.Context(), c, r)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if strings.HasSuffix(c.known(r.Name, r.Owner).nodes[0], "-0000000000") {
					anew.Add(1)
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("P1: %d hold the name", n)
				}
				time.Sleep(time.Duration(rand.IntN(int(time.Millisecond))))
				holders.Add(-1)
				if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
					t.Errorf("P4: %v", err)
				}
				if rand.IntN(4) == 0 {
					time.Sleep(time.Duration(rand.IntN(int(5 * time.Millisecond))))
				}
			}
		})
	}
	all.Wait()
	t.Logf("numbers began anew %d times; %d times nobody was likely to be before", anew.Load(), predicted.Load())
	if anew.Load() < 2 || predicted.Load() == 0 {
		t.Error("the test shows nothing")
	}
}

// TestDirectoryMadeAnew: a directory is removed and made again, and others make as many nodes in it as make the
// number of a client's next one follow that of its last. It is not the first for that, whether or not the
// client had a connection meanwhile.
func TestDirectoryMadeAnew(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	proxy := chaos.StartProxy(t, x.Members[0].Addr)
	c, other, java := dial(t, Config{Servers: []string{proxy.Addr}}), x.open(t), x.raw(t)
	defer c.Close()
	for _, cut := range []bool{false, true} {
		name := fmt.Sprint("anew-", cut)
		for range 3 { // 0 to 2
			release(t, c, take(t, c, request(name)))
		}
		var s *session
		for _, s = range c.sessions {
		}
		if !s.predicts("/" + name) {
			t.Fatal("the client does not expect to be the first")
		}
		if cut {
			proxy.Cut()
		}
		java.must(zk.Delete("/"+name, zk.AnyVersion))
		held := take(t, other, request(name)) // 0
		for range 2 {
			node := java.must(zk.Create("/"+name+"/"+someone+stemLock, nil, nil, zk.Ephemeral|zk.Sequential)).Path
			java.must(zk.Delete(node, zk.AnyVersion))
		}
		proxy.Heal()
		r := request(name) // 3
		if g, err := c.Try(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: cut %v: a second client has the name: %+v, %v", cut, g, err)
		}
		release(t, other, held)
	}
}
