// Package conntest checks that a redislock.Conn is what its comments say.
package conntest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// Run runs all checks. Connect returns a Conn to the server at the address.
func Run(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	for name, check := range map[string]func(*testing.T, *testserver.Redis, func(testing.TB, string) redislock.Conn){
		"replies": replies, "sent once": sentOnce, "context of another": outlivesOthers,
		"subscription": subscription, "silent server": silent,
	} {
		t.Run(name, func(t *testing.T) { check(t, server, connect) })
	}
}

// Refuses checks that no driver is made over a Conn, with an error that says what to open instead.
func Refuses(t *testing.T, conn redislock.Conn, says string) {
	t.Helper()
	if d, err := redislock.New(t.Context(), conn, nil); err == nil {
		d.Close()
		t.Errorf("a driver was made over a Conn that is no single server: %s is right", says)
	} else if !strings.Contains(err.Error(), says) {
		t.Errorf("%v does not say what to do: %s", err, says)
	}
}

func command(args ...string) redislock.Command {
	return redislock.Command{Args: args, Key: args[len(args)-1]}
}

// replies checks each type of reply, alone and in a pipeline.
func replies(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	c := connect(t, server.Addr)
	defer c.Close()
	script := func(text string) redislock.Command { return command("EVAL", text, "1", "key") }
	cases := []struct {
		command redislock.Command
		want    any
		refused string
	}{
		{command: command("SET", "key", "a b\r\n\x00"), want: "OK"},
		{command: command("GET", "key"), want: "a b\r\n\x00"},
		{command: script("return 9007199254740991"), want: int64(1<<53 - 1)},
		{command: script("return false")},
		{command: script("return {1, 'two', {3}, {}}"), want: []any{int64(1), "two", []any{int64(3)}, []any{}}},
		{command: script("return redis.error_reply('WRONG indeed')"), refused: "WRONG indeed"},
		{command: command("INCR", "key"), refused: "value is not an integer or out of range"},
	}
	var all []redislock.Command
	check := func(i int, r redislock.Reply) {
		t.Helper()
		refused, _ := r.Err.(*redislock.ServerError)
		switch want := &cases[i]; {
		case want.refused != "" && (refused == nil || refused.Text != want.refused):
			t.Errorf("%q gave the error %#v, not a ServerError %q", want.command.Args, r.Err, want.refused)
		case want.refused == "" && (r.Err != nil || !reflect.DeepEqual(r.Value, want.want)):
			t.Errorf("%q gave %#v, %v; want %#v", want.command.Args, r.Value, r.Err, want.want)
		}
	}
	for i := range cases {
		check(i, c.Do(t.Context(), []redislock.Command{cases[i].command})[0])
		all = append(all, cases[i].command)
	}
	for i, r := range c.Do(t.Context(), all) {
		check(i, r)
	}
}

// sentOnce cuts the connection when the server has done a command and its reply is held back. The Conn cannot know
// that, so the command must not be sent again, not even one that only reads.
func sentOnce(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	proxy := chaos.StartProxy(t, server.Addr)
	c := connect(t, proxy.Addr)
	defer c.Close()
	calls := func() (n int) {
		_, stats, _ := strings.Cut(server.Ask("INFO", "commandstats"), "cmdstat_strlen:calls=")
		fmt.Sscan(stats, &n) // without any call there is no line
		return n
	}
	for i, commands := range [][]redislock.Command{
		{command("STRLEN", "fragile")},
		{command("EVAL", "return redis.call('STRLEN', KEYS[1])", "1", "fragile")},
		{command("SET", "before", "1"), command("STRLEN", "fragile")},
	} {
		for c.Do(t.Context(), []redislock.Command{command("GET", "key")})[0].Err != nil { // until it is connected again
		}
		proxy.HoldReplies()
		answered := make(chan []redislock.Reply, 1)
		go func() { answered <- c.Do(t.Context(), commands) }()
		for calls() <= i {
			time.Sleep(time.Millisecond)
		}
		proxy.Cut()
		proxy.Heal()
		r := <-answered
		refused := (*redislock.ServerError)(nil)
		if err := r[len(r)-1].Err; err == nil || errors.As(err, &refused) {
			t.Errorf("a command whose reply was lost gave %#v", err)
		}
		if n := calls(); n != i+1 {
			t.Fatalf("the server has done %d commands of %d", n, i+1)
		}
	}
}

// outlivesOthers lets a request's deadline pass while another waits for the same
// server: the other one goes on.
func outlivesOthers(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	c := connect(t, server.Addr)
	defer c.Close()
	// A client library that begins to pipeline with the second request does it now.
	if r := c.Do(context.Background(), []redislock.Command{command("SET", "key", "value")})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	server.Pause()
	hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	late, patient := make(chan redislock.Reply, 1), make(chan redislock.Reply, 1)
	go func() { late <- c.Do(hasty, []redislock.Command{command("GET", "key")})[0] }()
	time.Sleep(20 * time.Millisecond) // so that it is the first: else nothing is tried
	go func() { patient <- c.Do(t.Context(), []redislock.Command{command("GET", "key")})[0] }()
	if r := <-late; r.Err == nil {
		t.Errorf("a request was answered %v by a server that stands still", r.Value)
	}
	server.Resume()
	if r := <-patient; r.Err != nil || r.Value != "value" {
		t.Errorf("a request gave %v, %v, because the deadline of another had passed", r.Value, r.Err)
	}
}

// subscription checks that messages are delivered in order, and "" after a gap.
func subscription(t *testing.T, server *testserver.Redis, connect func(testing.TB, string) redislock.Conn) {
	c := connect(t, server.Addr)
	defer c.Close()
	heard := make(chan string, 100)
	stop, err := c.Subscribe(t.Context(), "channel", func(m string) { heard <- m })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("heard %q, not %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("did not hear %q", want)
		}
	}
	publish := func(m string) int64 {
		r := c.Do(t.Context(), []redislock.Command{command("PUBLISH", "channel", m)})[0]
		n, _ := r.Value.(int64)
		return n
	}
	for _, m := range []string{"one", "two", "three"} {
		if n := publish(m); n != 1 {
			t.Errorf("%d listen after Subscribe has returned", n)
		}
	}
	expect("one")
	expect("two")
	expect("three")
	c.Do(t.Context(), []redislock.Command{command("CLIENT", "KILL", "TYPE", "pubsub")})
	expect("")
	publish("four")
	expect("four")
	stop()
	publish("five")
	select {
	case m := <-heard:
		t.Errorf("heard %q after stop had returned", m)
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stop, err := c.Subscribe(ctx, "channel", func(string) {}); err == nil {
		stop()
		t.Error("Subscribe under a cancelled context succeeded")
	}
}
