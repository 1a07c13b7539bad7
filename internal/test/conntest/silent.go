package conntest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// tooLate is after how long a request has failed to end with its context. It is shorter than the time
// in which client libraries give up connecting, and far longer than the contexts of the tests.
const tooLate = 4 * time.Second

// silent replaces the server by one that accepts connections and sends nothing. Every request ends with
// its context (P11), whenever the old connection breaks, and whichever request makes the new one.
func silent(t *testing.T, _ *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	c := connect(t, server.Addr)
	defer c.Close()
	kept := c.Do
	if r, ok := c.(interface {
		Reserve() func(context.Context, []redislock.Command) []redislock.Reply
	}); ok {
		kept = r.Reserve()
	}
	ways := map[string]func(ctx context.Context) error{
		"a request":  func(ctx context.Context) error { return c.Do(ctx, []redislock.Command{command("GET", "key")})[0].Err },
		"another":    func(ctx context.Context) error { return c.Do(ctx, []redislock.Command{command("GET", "key")})[0].Err },
		"a kept one": func(ctx context.Context) error { return kept(ctx, []redislock.Command{command("GET", "key")})[0].Err },
		"a subscribe": func(ctx context.Context) error {
			stop, err := c.Subscribe(ctx, "channel", func(string) {})
			if err == nil {
				stop()
			}
			return err
		},
	}
	for what, ask := range ways {
		if err := ask(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	server.Kill()
	mute, err := net.Listen("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for range 3 {
		type outcome struct {
			what string
			err  error
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan outcome, len(ways))
		for what, ask := range ways {
			go func() {
				err := ask(ctx)
				for err != nil && ctx.Err() == nil { // that the old connection has broken may come first
					err = ask(ctx)
				}
				ended <- outcome{what, err}
			}()
		}
		for range ways {
			select {
			case o := <-ended:
				if !errors.Is(o.err, context.DeadlineExceeded) {
					t.Errorf("P11: %s under a context that has ended returned %v", o.what, o.err)
				}
			case <-time.After(tooLate):
				t.Fatal("P11: a request does not end with its context")
			}
		}
		cancel()
	}
}
