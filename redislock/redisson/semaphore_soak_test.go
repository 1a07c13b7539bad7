//go:build soak

package redisson

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestSemaphoreWaits(t *testing.T) {
	w := newWorld(t)
	s, other := w.created(2), w.semaphore()
	if err := s.Acquire(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	acquired := w.begin(func() error { return other.Acquire(t.Context(), 2) })
	w.subscribed(s.channel)
	for range 2 {
		if err := s.Release(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := acquired(); err != nil {
		t.Fatal(err)
	}
	w.is("0")

	ctx, cancel := context.WithCancel(t.Context())
	acquired = w.begin(func() error { return s.Acquire(ctx, 1) })
	w.subscribed(s.channel)
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) {
		t.Errorf("Acquire whose context ended returned %v", err)
	}
	if err := s.Release(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	// A request that was under way may have taken the permit; then it comes back.
	w.until("the permit", func() bool { return w.do("GET", "n") == "1" })
	if _, err := s.TryAcquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("TryAcquire under a context that had ended returned %v", err)
	}
	w.is("1")
	if err := s.Release(ctx, 1); err != nil && !errors.Is(err, ErrUncertain) {
		t.Errorf("Release under a context that had ended returned %v", err)
	}
	w.until("the release under a context that had ended", func() bool { return w.do("GET", "n") == "2" })
}

// TestSemaphoreIsWokenByTheChannel: by polls alone the hand-overs would take far longer than the bound.
func TestSemaphoreIsWokenByTheChannel(t *testing.T) {
	w := newWorld(t)
	s, other := w.created(1), w.semaphore()
	const rounds = 4 * int(hanging/longestTold)
	played := w.begin(func() error {
		for range rounds {
			if err := s.Acquire(t.Context(), 1); err != nil {
				return err
			}
			acquired := w.begin(func() error { return other.Acquire(t.Context(), 1) })
			w.subscribed(s.channel)
			err := errors.Join(s.Release(t.Context(), 1), acquired(), other.Release(t.Context(), 1))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := played(); err != nil {
		t.Fatal(err)
	}
}

// TestSemaphoreAbandoned: the context ends after the server has taken the permits. They come back.
func TestSemaphoreAbandoned(t *testing.T) {
	w := newWorld(t)
	w.created(3)
	proxy := chaos.StartProxy(t, w.server.Addr)
	s, err := w.client(connect(t, proxy.Addr)).Semaphore("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), MaxCount); err != nil { // from now on the server knows the script
		t.Fatal(err)
	}
	proxy.HoldReplies()
	ctx, cancel := context.WithCancel(t.Context())
	acquired := w.begin(func() error { return s.Acquire(ctx, 2) })
	w.until("the request at the server", func() bool { return w.do("GET", "n") == "1" })
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire whose context ended returned %v", err)
	}
	proxy.Heal()
	w.until("the permits", func() bool { return w.do("GET", "n") == "3" })
}

// TestSemaphoreLostReply: nobody knows whether the permits were taken.
func TestSemaphoreLostReply(t *testing.T) {
	w := newWorld(t)
	w.created(3)
	proxy := chaos.StartProxy(t, w.server.Addr)
	s, err := w.client(connect(t, proxy.Addr)).Semaphore("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryAcquire(t.Context(), MaxCount); err != nil { // from now on the server knows the script
		t.Fatal(err)
	}
	proxy.HoldReplies()
	acquired := w.begin(func() error { return s.Acquire(t.Context(), 2) })
	w.until("the request at the server", func() bool { return w.do("GET", "n") == "1" })
	proxy.Cut()
	if err := acquired(); !errors.Is(err, ErrUncertain) {
		t.Errorf("Acquire whose reply was lost returned %v, not ErrUncertain", err)
	}
}

// TestSemaphoreCrowd: never are more permits taken than there are, and none is lost.
func TestSemaphoreCrowd(t *testing.T) {
	w := newWorld(t)
	const permits = 3
	semaphores := []*Semaphore{w.created(permits), w.semaphore()}
	var taken, most atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				s, n := semaphores[i%2], 1+i%permits
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i)*3*time.Millisecond)
				err := s.Acquire(ctx, n)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				now := taken.Add(int64(n))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				taken.Add(int64(-n))
				if err := s.Release(t.Context(), n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() > permits || most.Load() == 0 {
		t.Errorf("%d permits of %d were taken at a time", most.Load(), permits)
	}
	w.until("all permits", func() bool { return w.do("GET", "n") == "3" })
}

// TestSubscriptionEnds when nobody waits, and with the client.
func TestSubscriptionEnds(t *testing.T) {
	w := newWorld(t)
	s := w.semaphore()
	ctx, cancel := context.WithCancel(t.Context())
	acquired := w.begin(func() error { return s.Acquire(ctx, 1) })
	w.subscribed(s.channel)
	cancel()
	if err := acquired(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	none := func() bool { return w.do("PUBSUB", "NUMSUB", s.channel).([]any)[1] == int64(0) }
	w.until("the end of the subscription", none)

	acquired = w.begin(func() error { return s.Acquire(t.Context(), 1) })
	w.subscribed(s.channel)
	if err := s.c.Close(); err != nil {
		t.Error(err)
	}
	if err := acquired(); !errors.Is(err, ErrClosed) {
		t.Errorf("Acquire of a closed client returned %v", err)
	}
	w.until("the end of the subscription", none)
	if err := s.Release(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Release of a closed client returned %v", err)
	}
	if err := s.c.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the second Close returned %v", err)
	}
}

// TestUnknownScript: the server has forgotten the scripts.
func TestUnknownScript(t *testing.T) {
	w := newWorld(t)
	s := w.created(2)
	w.do("SCRIPT", "FLUSH")
	if ok, err := s.TryAcquire(t.Context(), 2); !ok || err != nil {
		t.Errorf("after SCRIPT FLUSH: %v, %v", ok, err)
	}
	w.is("0")
}

// TestSemaphoreInCluster: waiters poll, and what Redisson's clients hear goes by sharded channels. Names that Redisson
// handles wrongly are refused.
func TestSemaphoreInCluster(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{})
	conn, err := redislock.Dial(t.Context(), &url.URL{Scheme: "redis+cluster", Host: servers.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, _ := c.Semaphore("n")
	_, err = s.Create(t.Context(), 1, 0)
	if err = errors.Join(err, s.Acquire(t.Context(), 1)); err != nil {
		t.Fatal(err)
	}
	acquired := make(chan error, 1)
	go func() { acquired <- s.Acquire(t.Context(), 1) }()
	if err := errors.Join(s.Release(t.Context(), 1), <-acquired); err != nil {
		t.Fatal(err)
	}
	if told := servers.Master("n").Ask("INFO", "commandstats"); !strings.Contains(told, "cmdstat_spublish") {
		t.Errorf("the master of the name has carried out %q", told)
	}
	for _, server := range servers.Servers { // as of a version without sharded channels
		server.Ask("ACL", "SETUSER", "default", "-pubsub|shardnumsub")
	}
	old, err := New(t.Context(), conn)
	if err != nil || old.publish != "PUBLISH" {
		t.Fatalf("where SHARDNUMSUB is refused: %v, %v", old, err)
	}
	defer old.Close()
	for name, good := range map[string]bool{"a{}b": false, "{}a{b}": false, "a}b{c}": false, "a}b": false, "{a}b": true} {
		if _, err := c.Semaphore(name); (err == nil) != good {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}
