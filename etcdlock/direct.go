package etcdlock

import (
	"context"
	"math"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// callOptions are the library's own defaults, but for the bound of a request's size: ours are small.
var callOptions = []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// commit sends a transaction to etcd directly: see package table. Its errors are those of the library's Txn.
func commit(ctx context.Context, etcd etcdserverpb.KVClient, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := etcd.Txn(ctx, req, callOptions...)
	if err != nil {
		return nil, ended(ctx, clientv3.ContextError(ctx, err))
	}
	return resp, nil
}

// countOp counts the keys of a span, as the member that is asked knows them.
func countOp(s span) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: []byte(s.key), RangeEnd: []byte(s.end), CountOnly: true, Serializable: true},
	}}
}
