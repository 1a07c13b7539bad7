package redisson

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// hanging bounds what takes no time.
const hanging = time.Minute

// testConn is the least redislock.Conn: one connection for commands, and one for each subscription.
type testConn struct {
	address string
	hello   []redislock.Command
	line    *wire.Line
}

func connect(t testing.TB, address string, hello ...redislock.Command) *testConn {
	t.Helper()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	c := &testConn{address, hello, wire.Open(wire.Options{Dial: dial, Hello: hello, Patience: hanging})}
	t.Cleanup(c.line.Close)
	return c
}

func (c *testConn) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	for {
		if replies, sent := c.line.Do(ctx, commands); sent {
			return replies
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return []redislock.Reply{{Err: ctx.Err()}}
		}
	}
}

func (c *testConn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	subscribe := redislock.Command{Args: []string{"SUBSCRIBE", channel}}
	in := bufio.NewReader(conn)
	for _, command := range append(slices.Clone(c.hello), subscribe) {
		if command.Args[0] == "HELLO" {
			continue
		}
		io.WriteString(conn, strings.Join(command.Args, " ")+"\r\n")
		if reply, err := readPush(in); err != nil || strings.HasPrefix(reply[0], "-") {
			conn.Close()
			return nil, &redislock.ServerError{Text: strings.Join(reply, " ")}
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			push, err := readPush(in)
			if err != nil {
				return
			}
			deliver(push[len(push)-1])
		}
	})
	return func() { conn.Close(); work.Wait() }, nil
}

// readPush reads a line, or a list of texts and numbers.
func readPush(in *bufio.Reader) ([]string, error) {
	line, err := in.ReadString('\n')
	line = strings.TrimSuffix(line, "\r\n")
	if err != nil || line[0] != '*' {
		return []string{line}, err
	}
	n, _ := strconv.Atoi(line[1:])
	var all []string
	for range n {
		text, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if text[0] == '$' {
			if text, err = in.ReadString('\n'); err != nil {
				return nil, err
			}
		}
		all = append(all, strings.TrimSuffix(text, "\r\n"))
	}
	return all, nil
}

func (c *testConn) Close() error { return nil }

// world is a server, and a way to it that knows nothing of semaphores.
type world struct {
	*testing.T
	server *testserver.Redis
	admin  *testConn
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
