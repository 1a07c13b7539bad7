package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

// quick is an election time with which etcd's shortest lease is 1 s.
const quick = 500 * time.Millisecond

// shared returns the etcd that the tests of the gate share, empty.
func shared(t testing.TB) *testserver.Etcd {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.Etcd {
		return testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	}, func(t testing.TB, server *testserver.Etcd) {
		c := dialClient(t, server.Addrs())
		defer c.Close()
		if _, err := c.Delete(t.Context(), "", clientv3.WithFromKey()); err != nil {
			t.Fatal(err)
		}
		all, err := c.Leases(t.Context())
		must(t, err)
		for _, l := range all.Leases {
			c.Revoke(t.Context(), l.ID) // fails if it has expired
		}
	})
}

// dialClient returns a client of etcd.
func dialClient(t testing.TB, addrs string) *clientv3.Client {
	t.Helper()
	list, err := endpoints(addrs, false)
	must(t, err)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: list, DialTimeout: dialTimeout, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return etcd
}

// dial returns a driver whose poll is short, so that dead waiters are waited for
// quickly. The test closes it, unless it has been closed.
func dial(t testing.TB, addrs string, o *Options) *client {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	o.Poll = 750 * time.Millisecond
	c, err := connect(t.Context(), dialClient(t, addrs), true, o)
	if err != nil {
		t.Fatalf("etcdlock.New: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// openLocks opens a client by its URL.
func openLocks(t testing.TB, url string) *holdfast.Client {
	t.Helper()
	locks, err := holdfast.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// crash ends a client as the death of its process does: nothing is kept alive and
// nothing deleted any more.
func crash(c *client) {
	c.die()
	c.timer.Close()
	c.main.etcd.Close() // says that its context has ended
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), TTL: 30 * time.Second}
}

func take(t testing.TB, c *client, req driver.Request) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context(), req)
	if err != nil {
		t.Fatalf("P7: Try of a free name: %v", err)
	}
	return g
}

func release(t testing.TB, c *client, g driver.Grant) {
	t.Helper()
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Errorf("P4: a release: %v", err)
	}
}

// line puts a request into the queue, where it must wait.
func line(t testing.TB, c *client, req driver.Request) {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Enqueue of a held name: %v", err)
	}
}

// await waits until a request that is queued is granted, and confirms it each poll.
func await(ctx context.Context, c *client, req driver.Request) (g driver.Grant, err error) {
	for {
		poll, cancel := context.WithTimeout(ctx, c.caps.Poll)
		g, err = c.Wait(poll, req)
		cancel()
		if !errors.Is(err, driver.ErrHeld) && (poll.Err() == nil || ctx.Err() != nil || err == nil) {
			return g, err
		}
		if g, err = c.Enqueue(ctx, req); !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
	}
}

// leaseOf returns the lease that the one key of a name is on.
func leaseOf(t testing.TB, c *client, name string) int64 {
	t.Helper()
	r, err := c.main.get(t.Context(), table.Read(c.layout.Dir(name)))
	must(t, err)
	if len(r.Kvs) != 1 {
		t.Fatalf("the name has the keys %v", r)
	}
	return r.Kvs[0].Lease
}

// waiters returns when so many wait for a name.
func waiters(t testing.TB, locks *holdfast.Client, name string, want int) {
	t.Helper()
	for {
		info, err := locks.Inspect(t.Context(), name)
		must(t, err)
		if len(info.Waiters) == want {
			return
		}
		time.Sleep(5 * time.Millisecond) // then look again
	}
}

// intercepted is a way to etcd on which the test decides what becomes of transactions.
type intercepted struct {
	etcdserverpb.KVClient
	txn func(context.Context, *etcdserverpb.TxnRequest, sender) (*etcdserverpb.TxnResponse, error)
}

// sender sends a transaction, and waits for the answer.
type sender func() (*etcdserverpb.TxnResponse, error)

func (i *intercepted) Txn(ctx context.Context, req *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	return i.txn(ctx, req, func() (*etcdserverpb.TxnResponse, error) {
		return i.KVClient.Txn(context.WithoutCancel(ctx), req, opts...)
	})
}

// intercept has a client's transactions go through a function, until restore is called.
func intercept(c *client, txn func(context.Context, *etcdserverpb.TxnRequest, sender) (*etcdserverpb.TxnResponse, error)) (restore func()) {
	before := c.main
	c.main = &route{before.etcd, &intercepted{before.rpc, txn}, before.leases}
	return func() { c.main = before }
}

// delay has the first transaction of a kind get no answer, and arrive when it is told to.
func delay(t testing.TB, c *client, kind func(*etcdserverpb.TxnRequest) bool) (arrive sender, restore func()) {
	var late sender
	restore = intercept(c, func(_ context.Context, req *etcdserverpb.TxnRequest, send sender) (*etcdserverpb.TxnResponse, error) {
		if late != nil || !kind(req) {
			return send()
		}
		late = send
		return nil, context.DeadlineExceeded
	})
	return func() (*etcdserverpb.TxnResponse, error) {
		if late == nil {
			t.Fatal("nothing was held up")
		}
		return late()
	}, restore
}

func TestMain(m *testing.M) { testserver.Main(m) }
