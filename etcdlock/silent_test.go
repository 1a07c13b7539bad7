package etcdlock

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// asks are requests of each kind, none of which waits for a lock.
func asks(c *client) map[string]func(context.Context) error {
	request := func(name string) driver.Request {
		return driver.Request{Name: name, Owner: "owner of " + name, TTL: 10 * time.Second}
	}
	granted := driver.Grant{Request: request("held"), Token: 1}
	return map[string]func(context.Context) error{
		"Try":       func(ctx context.Context) error { _, err := c.Try(ctx, request("tried")); return err },
		"Enqueue":   func(ctx context.Context) error { _, err := c.Enqueue(ctx, request("queued")); return err },
		"Renew":     func(ctx context.Context) error { return c.Renew(ctx, []driver.Grant{granted})[0].Err },
		"Release":   func(ctx context.Context) error { return c.Release(ctx, []driver.Grant{granted})[0] },
		"Inspect":   func(ctx context.Context) error { _, err := c.Inspect(ctx, "held"); return err },
		"Break":     func(ctx context.Context) error { return c.Break(ctx, "held", 1) },
		"Annotate":  func(ctx context.Context) error { return c.Annotate(ctx, granted) },
		"Downgrade": func(ctx context.Context) error { _, err := c.Downgrade(ctx, granted); return err },
		"List": func(ctx context.Context) error {
			for _, err := range c.List(ctx, "") {
				return err
			}
			return nil
		},
	}
}

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

// failing is an etcd that fails in the words of its client library.
type failing struct {
	clientv3.KV
	err error
}

func (f failing) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, f.err
}

func (f failing) Do(context.Context, clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, f.err
}

func (f failing) Txn(context.Context) clientv3.Txn { return failingTxn{err: f.err} }

type failingTxn struct {
	clientv3.Txn
	err error
}

func (f failingTxn) If(...clientv3.Cmp) clientv3.Txn        { return f }
func (f failingTxn) Then(...clientv3.Op) clientv3.Txn       { return f }
func (f failingTxn) Else(...clientv3.Op) clientv3.Txn       { return f }
func (f failingTxn) Commit() (*clientv3.TxnResponse, error) { return nil, f.err }

// TestErrorsOfEndedContexts: the library's words for the end of a context are no
// context's errors; those of the driver are.
func TestErrorsOfEndedContexts(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	dialing := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for what, c := range map[string]struct {
		ctx       context.Context
		err, want error
	}{
		"the server sees the deadline first":  {t.Context(), status.Error(codes.DeadlineExceeded, "context deadline exceeded"), context.DeadlineExceeded},
		"dialling, under a cancelled context": {cancelled, dialing, context.Canceled},
		"a context that goes on":              {t.Context(), dialing, os.ErrDeadlineExceeded},
	} {
		etcd := requests{failing{err: c.err}}
		_, got := etcd.Get(c.ctx, "")
		_, done := etcd.Do(c.ctx, clientv3.OpGet(""))
		_, committed := etcd.Txn(c.ctx).If().Then().Else().Commit()
		for _, err := range []error{got, done, committed} {
			if !errors.Is(err, c.want) || !errors.Is(err, c.err) {
				t.Errorf("P11: %s: %v", what, err)
			}
		}
	}
}
