//go:build soak

package wire

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestListening: messages of several channels come on one connection, in order, and a channel is confirmed. The
// connection is lost when the server ends it, or refuses; nothing is heard after Close.
func TestListening(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	s := Open(Options{Dial: to(server.Addr), Dialed: new(Dialed)})
	defer s.Close()
	type message struct{ channel, text string }
	heard := make(chan message, 100)
	expect := func(channel, text string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != (message{channel, text}) {
				t.Fatalf("heard %q, not %q on %s", got, text, channel)
			}
		case <-time.After(time.Minute):
			t.Fatalf("did not hear %q on %s", text, channel)
		}
	}
	do := func(args ...string) any {
		t.Helper()
		r := s.Do(t.Context(), command(args...))[0]
		if r.Err != nil {
			t.Fatalf("%q: %v", args, r.Err)
		}
		return r.Value
	}
	listen := func() *Listening {
		t.Helper()
		l, err := s.Listen(t.Context(), func(channel, text string) { heard <- message{channel, text} })
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	subscribe := func(l *Listening, channels ...string) {
		t.Helper()
		if err := l.Subscribe(t.Context(), channels...); err != nil {
			t.Fatal(err)
		}
		for _, channel := range channels {
			expect(channel, "")
		}
	}
	lost := func(l *Listening) {
		t.Helper()
		select {
		case <-l.Lost():
		case <-time.After(time.Minute):
			t.Fatal("the loss is not noticed")
		}
	}

	l := listen()
	subscribe(l, "a")
	subscribe(l, "b", "c d")
	for _, channel := range []string{"b", "c d", "a"} {
		do("PUBLISH", channel, "news")
		expect(channel, "news")
	}
	if err := l.Unsubscribe(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	until(t, "the channel stays subscribed", func() bool { return do("PUBLISH", "b", "nobody listens") == int64(0) })
	for len(heard) > 0 {
		<-heard
	}
	do("CLIENT", "KILL", "TYPE", "pubsub")
	lost(l)
	l.Close()

	l = listen()
	subscribe(l, "a")
	l.Close()
	do("PUBLISH", "a", "closed")
	if len(heard) > 0 {
		t.Errorf("heard %q after Close had returned", <-heard)
	}

	do("ACL", "SETUSER", "default", "resetchannels")
	l = listen()
	if err := l.Subscribe(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	lost(l)
	if is := (*ServerError)(nil); !errors.As(l.err, &is) || is.Code() != "NOPERM" {
		t.Errorf("the server's refusal is %v", l.err)
	}
	l.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := s.Listen(ctx, func(string, string) {}); err == nil {
		l.Close()
		t.Error("Listen under a cancelled context succeeded")
	}
}
