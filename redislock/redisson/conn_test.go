package redisson

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// hanging bounds what takes no time.
const hanging = time.Minute

// connect connects to a server, as a user if one is given, until the end of the test.
func connect(t testing.TB, address string, user ...string) redislock.Conn {
	t.Helper()
	u := &url.URL{Scheme: "redis", Host: address}
	if len(user) > 0 {
		u.User = url.UserPassword(user[0], user[1])
	}
	c, err := redislock.Dial(context.Background(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// world is a server, and a way to it that knows nothing of semaphores.
type world struct {
	*testing.T
	server *testserver.Redis
	admin  redislock.Conn
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	return &world{t, server, connect(t, server.Addr)}
}

func (w *world) do(args ...string) any {
	w.Helper()
	r := w.admin.Do(w.Context(), []redislock.Command{{Args: args}})[0]
	if r.Err != nil {
		w.Fatalf("%q: %v", args, r.Err)
	}
	return r.Value
}

// is asserts what the key of the name n has: nil if there is none.
func (w *world) is(want any) {
	w.Helper()
	if got := w.do("GET", "n"); got != want {
		w.Errorf("the key has %v, not %v", got, want)
	}
}

// client returns a client on a connection to an address.
func (w *world) client(conn redislock.Conn) *Client {
	w.Helper()
	c, err := New(w.Context(), conn)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return c
}

func (w *world) semaphore() *Semaphore {
	w.Helper()
	s, err := w.client(connect(w, w.server.Addr)).Semaphore("n")
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) latch() *Latch {
	w.Helper()
	l, err := w.client(connect(w, w.server.Addr)).Latch("n")
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// created makes a semaphore.
func (w *world) created(permits int) *Semaphore {
	w.Helper()
	s := w.semaphore()
	if ok, err := s.Create(w.Context(), permits, 0); err != nil || !ok {
		w.Fatalf("Create of a new semaphore: %v, %v", ok, err)
	}
	return s
}

// hears returns the messages of a channel.
func (w *world) hears(channel string) (next func() string) {
	w.Helper()
	messages := make(chan string, 100)
	stop, err := w.admin.Subscribe(w.Context(), channel, func(m string) { messages <- m })
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stop)
	return func() string {
		select {
		case m := <-messages:
			return m
		case <-time.After(hanging):
			return "nothing"
		}
	}
}

// begin runs f, and returns a function that waits for its error.
func (w *world) begin(f func() error) (end func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error {
		w.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(hanging):
			w.Fatal("it hangs")
			return nil
		}
	}
}

// until waits until something is so.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(hanging); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within %v: %s", hanging, what)
		}
	}
}

// subscribed waits until a client hears a channel.
func (w *world) subscribed(channel string) {
	w.Helper()
	w.until("a subscription to "+channel, func() bool {
		return w.do("PUBSUB", "NUMSUB", channel).([]any)[1] != int64(0)
	})
}
