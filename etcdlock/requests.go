package etcdlock

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// requests are etcd's own, but the error of one whose context has ended says so in the
// context's words, whatever part of the library it ended in (P11).
type requests struct{ clientv3.KV }

func (r requests) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := r.KV.Get(ctx, key, opts...)
	return resp, ended(ctx, err)
}

func (r requests) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	resp, err := r.KV.Do(ctx, op)
	return resp, ended(ctx, err)
}

func (r requests) Txn(ctx context.Context) clientv3.Txn { return transaction{r.KV.Txn(ctx), ctx} }

// transaction is the same for a transaction.
type transaction struct {
	clientv3.Txn
	ctx context.Context
}

func (t transaction) If(cs ...clientv3.Cmp) clientv3.Txn {
	return transaction{t.Txn.If(cs...), t.ctx}
}

func (t transaction) Then(ops ...clientv3.Op) clientv3.Txn {
	return transaction{t.Txn.Then(ops...), t.ctx}
}

func (t transaction) Else(ops ...clientv3.Op) clientv3.Txn {
	return transaction{t.Txn.Else(ops...), t.ctx}
}

func (t transaction) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.Txn.Commit()
	return resp, ended(t.ctx, err)
}

// leases is the same for leases.
type leases struct{ clientv3.Lease }

func (l leases) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	resp, err := l.Lease.Grant(ctx, ttl)
	return resp, ended(ctx, err)
}

func (l leases) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	resp, err := l.Lease.TimeToLive(ctx, id, opts...)
	return resp, ended(ctx, err)
}

// ended returns err, as an error of the context if that has ended. The deadline goes to
// the server with the request, so the server can say that it has passed a little before
// the context does.
func ended(ctx context.Context, err error) error {
	if err = ctxerr.Of(ctx, err); status.Code(err) == codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
