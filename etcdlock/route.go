package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// route is a way to etcd. Renewals and releases have one of their own: connections on which nothing else is under
// way. So neither etcd's limit of requests for each connection, nor large answers, nor other requests of a program
// that shares its client with its locks hold them up.
type route struct {
	etcd   *clientv3.Client
	rpc    etcdserverpb.KVClient
	leases clientv3.Lease
}

func newRoute(etcd *clientv3.Client) *route {
	return &route{etcd, clientv3.RetryKVClient(etcd), clientv3.NewLease(etcd)}
}

// spareRoute returns the route of renewals and releases, or that of all other requests while it has no connection.
func (c *client) spareRoute() *route {
	if w := c.spare; w != nil && w.etcd.ActiveConnection().GetState() == connectivity.Ready {
		return w
	}
	return c.main
}

// callOptions are the library's own defaults, but for the bound of a request's size: ours are small.
var callOptions = []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// get reads keys.
func (w *route) get(ctx context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	resp, err := w.rpc.Range(ctx, req, callOptions...)
	return resp, ended(ctx, clientv3.ContextError(ctx, err))
}

// txn sends a transaction.
func (w *route) txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := w.rpc.Txn(ctx, req, callOptions...)
	return resp, ended(ctx, clientv3.ContextError(ctx, err))
}

// ended returns err. If the context has ended, the error says so in the context's words, whatever part
// of the library the request ended in (P11). The deadline goes to the server with the request, so the
// server can say that it has passed a little before the context does.
func ended(ctx context.Context, err error) error {
	if err = ctxerr.Of(ctx, err); status.Code(err) == codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// refused reports whether an error says that the store has certainly not done
// what was asked. Everything else may be done yet.
func refused(err error) bool {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true
	}
	var etcd rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &etcd) {
		code = etcd.Code()
	}
	return slices.Contains([]codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated,
	}, code)
}

// requestWithin bounds a request that has no deadline of its own.
const requestWithin = 5 * time.Second

// bounded is the context of one or a few requests: bounded in time and by the
// client's life, since the library repeats requests on a connection that is closed;
// and refused by a member that knows of no leader, so that another is asked.
func (c *client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestWithin)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// alive returns why no request should be made.
func (c *client) alive(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return driver.ErrClosed
	}
	return ctx.Err()
}
