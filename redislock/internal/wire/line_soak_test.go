//go:build soak

package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// open returns a line that is up.
func open(t *testing.T, address string, patience time.Duration, hello ...Command) *line {
	t.Helper()
	l := openLine(&Options{Hello: hello, Dial: to(address)}, patience)
	t.Cleanup(l.close)
	testserver.Must(t, l.await(t.Context()))
	return l
}

// to dials an address.
func to(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
}

func until(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal(otherwise)
		}
	}
}

// id is the number that the server has given the connection.
func id(t *testing.T, l *line) any {
	t.Helper()
	replies, sent := l.try(t.Context(), command("CLIENT", "ID"))
	if !sent || replies[0].Err != nil {
		t.Fatalf("CLIENT ID: %v, %v", sent, replies)
	}
	return replies[0].Value
}

// TestEachGetsItsReplies: many callers, of whom some give up at any moment, get the replies to
// their own commands and no others.
func TestEachGetsItsReplies(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	l := open(t, server.Addr, silence)
	var callers sync.WaitGroup
	var given sync.Map
	for i := range 32 {
		callers.Go(func() {
			for n := range 300 {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if n%3 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
				}
				if n%3 == 1 {
					ctx = context.Background()
				}
				var commands []Command
				for k := range 1 + rand.IntN(3) {
					commands = append(commands, command("ECHO", fmt.Sprint(i, n, k, strings.Repeat("x", rand.IntN(1000))))...)
				}
				replies, sent := l.try(ctx, commands)
				if !sent || len(replies) != len(commands) {
					t.Errorf("%d replies to %d commands, sent: %v", len(replies), len(commands), sent)
				}
				for k, r := range replies {
					switch {
					case r.Err == nil && r.Value != commands[k].Args[1]:
						t.Errorf("the reply to %q is %q", commands[k].Args[1], r.Value)
					case r.Err != nil && (ctx.Err() == nil || !errors.Is(r.Err, ctx.Err())):
						t.Errorf("the reply is %v under a context that has %v", r.Err, ctx.Err())
					case r.Err != nil:
						given.Store("up", true)
					}
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if _, some := given.Load("up"); !some {
		t.Error("nobody has given up")
	}
}

// TestLossIsKnownBeforeUse: a connection that ends while nobody uses it is known to have ended, so
// no request is lost on it; and it is made again.
func TestLossIsKnownBeforeUse(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	l := open(t, server.Addr, silence)
	id(t, l)
	c := l.now.Load()
	until(t, "nobody reads the idle connection", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reader != nil
	})
	server.Kill()
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		t.Fatal("the loss is not noticed")
	}
	until(t, "the lost connection is used", func() bool { return l.now.Load() != c })
	server.Start()
	until(t, "the connection is not made again", func() bool {
		replies, sent := l.try(t.Context(), command("CLIENT", "ID"))
		return sent && replies[0].Err == nil && l.now.Load() != c
	})
}

// TestSilentServerIsLeft: if a caller gives up when nothing was heard for long enough, the
// connection is made anew; if others have been answered meanwhile, or it was not long, it is not.
func TestSilentServerIsLeft(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	l := open(t, server.Addr, 200*time.Millisecond)
	first := id(t, l)
	giveUp := func(after time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		start := time.Now()
		if replies, sent := l.try(ctx, command("GET", "key")); !sent || !errors.Is(replies[0].Err, context.DeadlineExceeded) {
			t.Errorf("a request to a silent server: %v, %v", replies, sent)
		}
		if took := time.Since(start); took > after+5*time.Second {
			t.Errorf("P11: a request under a context of %v took %v", after, took)
		}
	}
	server.Pause()
	giveUp(time.Millisecond)
	server.Resume()
	if now := id(t, l); now != first {
		t.Errorf("connection %v was replaced by %v because somebody gave up after 1 ms", first, now)
	}
	server.Pause()
	giveUp(300 * time.Millisecond)
	server.Resume()
	until(t, "the silent connection stays", func() bool {
		replies, sent := l.try(t.Context(), command("CLIENT", "ID"))
		return sent && replies[0].Err == nil && replies[0].Value != first
	})
}

// TestServerThatTakesNothing: callers that cannot write because the server reads nothing return when their contexts
// end (P11), and the line goes on with the server.
func TestServerThatTakesNothing(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	l := open(t, server.Addr, silence)
	server.Pause()
	var hasty sync.WaitGroup
	big := strings.Repeat("x", 8<<20)
	for range 4 {
		hasty.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			if r := l.do(ctx, command("SET", "key", big))[0]; r.Err == nil {
				t.Errorf("P11: a server that reads nothing has answered %v", r)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("P11: a request under a context of 100 ms took %v", took)
			}
		})
	}
	hasty.Wait()
	server.Resume()
	until(t, "the line does not go on", func() bool { return l.do(t.Context(), command("PING"))[0].Err == nil })
}
