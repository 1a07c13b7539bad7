package conntest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// RunListening checks that a Conn to database 2 is a redislock.Listener.
func RunListening(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	c := connect(t, server.Addr)
	defer c.Close()
	listener := c.(redislock.Listener)
	type message struct{ channel, text string }
	heard := make(chan message, 100)
	expect := func(channel, text string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != (message{channel, text}) {
				t.Fatalf("heard %q, not %q on %s", got, text, channel)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("did not hear %q on %s", text, channel)
		}
	}
	do := func(args ...string) any {
		t.Helper()
		r := c.Do(t.Context(), []redislock.Command{{Args: args}})[0]
		if r.Err != nil {
			t.Fatalf("%q: %v", args, r.Err)
		}
		return r.Value
	}
	listen := func() redislock.Listening {
		t.Helper()
		l, err := listener.Listen(t.Context(), func(channel, text string) { heard <- message{channel, text} })
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	failing := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	l := listen()
	failing(l.Subscribe(t.Context(), "a"))
	expect("a", "")
	failing(l.Subscribe(t.Context(), "b", "c d"))
	expect("b", "")
	expect("c d", "")
	for _, channel := range []string{"b", "c d", "a"} {
		do("PUBLISH", channel, "news")
		expect(channel, "news")
	}
	failing(l.Unsubscribe(t.Context(), "b"))
	for end := time.Now().Add(20 * time.Second); do("PUBLISH", "b", "nobody listens") != int64(0); {
		if time.Now().After(end) {
			t.Fatal("the channel stays subscribed")
		}
	}
	for len(heard) > 0 {
		<-heard
	}
	failing(l.Subscribe(t.Context(), "b"))
	expect("b", "")
	do("CLIENT", "KILL", "TYPE", "pubsub")
	lost(t, l)
	if err := l.Subscribe(t.Context(), "a"); err == nil {
		// It may have been sent before the loss was known; nothing must be heard.
		time.Sleep(10 * time.Millisecond)
	}
	l.Close()
	for len(heard) > 0 {
		<-heard
	}

	l = listen()
	failing(l.Subscribe(t.Context(), "a"))
	expect("a", "")
	l.Close()
	do("PUBLISH", "a", "closed")
	if len(heard) > 0 {
		t.Errorf("heard %q after Close had returned", <-heard)
	}

	// A user that may not: the server's refusal ends the connection, or Subscribe returns it.
	do("ACL", "SETUSER", "default", "resetchannels")
	l = listen()
	if l.Subscribe(t.Context(), "a") == nil {
		lost(t, l)
	}
	l.Close()
	do("ACL", "SETUSER", "default", "allchannels")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := listener.Listen(ctx, func(string, string) {}); err == nil {
		if l.Subscribe(ctx, "a") == nil {
			t.Error("Subscribe under a cancelled context succeeded")
		}
		l.Close()
	}
}

func lost(t *testing.T, l redislock.Listening) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the loss is not noticed")
	}
}
