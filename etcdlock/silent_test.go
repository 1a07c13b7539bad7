package etcdlock

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/driver"
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
