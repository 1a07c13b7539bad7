package conntest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// RunListening checks that a Conn to database 2 is a redislock.Listener.
func RunListening(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	c := connect(t, server.Addr)
	defer c.Close()
	listener := c.(redislock.Listener)
	if n, known := listener.Database(); n != 2 || !known {
		t.Errorf("the database is %d, %v", n, known)
	}
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

// RunTold checks a driver of the layout SetNX over a Conn to database 2 of a server that tells of keys: a
// waiter hears of a DEL there, and not of one in another database.
func RunTold(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--notify-keyspace-events", "Kgx"}})
	c := connect(t, server.Addr)
	d, err := redislock.New(t.Context(), c, &redislock.Options{Layout: redislock.SetNX})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w := d.(driver.Waker).Wakes("n")
	if w == nil {
		t.Fatal("the driver does not listen, although the server tells")
	}
	defer w.Stop()
	for late := time.After(time.Minute); !w.Sure(); {
		select {
		case <-w.C():
		case <-late:
			t.Fatal("the server has not confirmed the channel")
		}
	}
	select {
	case <-w.C():
	default:
	}
	if answer := server.Ask("SET", "n", "in database 0"); answer != "OK" {
		t.Fatal(answer)
	}
	server.Ask("DEL", "n")
	do := func(args ...string) { c.Do(t.Context(), []redislock.Command{{Args: args}}) }
	do("SET", "other", "x")
	do("DEL", "other")
	select {
	case <-w.C():
		t.Error("a DEL in another database, or of another key, was heard")
	default:
	}
	do("SET", "n", "x")
	do("DEL", "n")
	select {
	case <-w.C():
	case <-time.After(time.Minute):
		t.Error("P7: a DEL was not heard")
	}
}
