//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestEndedContexts: whatever a request waits for when its context ends (a connection
// that is being made to a silent server, an answer, a member that is gone), it ends
// then, and its error says that the context has ended (P11).
func TestEndedContexts(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	proxy := chaos.StartProxy(t, server.Addrs())
	open := func(what string) *client {
		c := dial(t, proxy.Addr, nil)
		t.Cleanup(func() { c.Close() })
		if _, err := c.Try(t.Context(), driver.Request{Name: what, Owner: what, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ends := func(c *client, when string) {
		t.Helper()
		for what, ask := range asks(c) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			for { // a connection that breaks may be told first, also at the last moment
				over := ctx.Err() != nil
				err := ask(ctx)
				if err != nil && !over && !errors.Is(err, context.DeadlineExceeded) {
					continue
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("P11: %s, %s: %v", what, when, err)
				}
				break
			}
			if took := time.Since(began); took > dialTimeout-time.Second {
				t.Errorf("P11: %s, %s: returned after %v", what, when, took)
			}
			cancel()
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			if err := ask(cancelled); !errors.Is(err, context.Canceled) {
				t.Errorf("P11: %s, under a cancelled context: %v", what, err)
			}
		}
	}
	c := open("mute")
	proxy.Hold(chaos.ToClient, "")
	ends(c, "of a server that does not answer")
	proxy.Cut()
	ends(c, "of a server that cannot be reached")
	proxy.Heal()
	c = open("later")
	proxy.Hold(chaos.ToServer, "")
	proxy.Cut()
	ends(c, "while a connection is made")
}

// TestOpenEnds: Open returns when its context ends, with a password and without,
// although nobody answers.
func TestOpenEnds(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for _, user := range []string{"", "user:password@"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan error, 1)
		go func() {
			_, err := holdfast.Open(ctx, "etcd://"+user+mute.Addr().String())
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("P11: opening a store that does not answer: %v", err)
			}
		case <-time.After(dialTimeout - time.Second):
			t.Error("P11: Open does not hear of the end of its context")
		}
		cancel()
	}
}

// TestNobodyThere: a store of which no member can be reached is told at once, with the
// address and what is wrong.
func TestNobodyThere(t *testing.T) {
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	one, two, three := closed(), closed(), closed()
	for url, want := range map[string][]string{
		"etcd://" + one: {one, "connection refused"},
		"etcd://" + strings.Join([]string{one, two, three}, ","): {"127.0.0.1:", "connection refused"},
		"etcd://user:password@" + one:                            {one, "connection refused"},
		"etcds://" + one:                                         {one, "connection refused"},
		"etcd://nobody.invalid":                                  {"nobody.invalid", "lookup"},
	} {
		began := time.Now()
		locks, err := holdfast.Open(t.Context(), url)
		if err == nil {
			locks.Close()
			t.Errorf("%s is opened", url)
			continue
		}
		if took := time.Since(began); took > dialTimeout/2 {
			t.Errorf("%s: told after %v", url, took)
		}
		if status.Code(err) != codes.Unavailable || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", url, err)
		}
		for _, part := range append(want, "rror while dialing") { // by which "holdfast run" goes
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not say %q: %v", url, part, err)
			}
		}
	}
}

// TestSomeAreThere: a store is opened and used although one of its members is gone.
func TestSomeAreThere(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3, Election: quick})
	server.Members[0].Kill()
	for range 5 { // the order in which connections are made is not always the same
		locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
		if err != nil {
			t.Fatal(err)
		}
		lease, err := locks.Mutex("some", nil).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
		locks.Close()
	}
}
