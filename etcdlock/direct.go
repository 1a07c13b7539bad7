package etcdlock

import (
	"context"
	"math"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// The two transactions that every uncontended pair makes are put together by hand and go
// to etcd directly: the library's builder clones each comparison by reflection and copies
// each operation twice, which is a third of what a pair costs the client beside gRPC.

// callOptions are the library's own defaults, but for the bound of a request's size: ours are small.
var callOptions = []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// commit sends a transaction. Its errors are those of the library's Txn.
func commit(ctx context.Context, etcd etcdserverpb.KVClient, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	resp, err := etcd.Txn(ctx, req, callOptions...)
	if err != nil {
		return nil, ended(ctx, clientv3.ContextError(ctx, err))
	}
	return resp, nil
}

// compareCreated compares the create revision of a key, or of all keys up to end.
func compareCreated(key, end []byte, op etcdserverpb.Compare_CompareResult, rev int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{
		Result: op, Target: etcdserverpb.Compare_CREATE, Key: key, RangeEnd: end,
		TargetUnion: &etcdserverpb.Compare_CreateRevision{CreateRevision: rev},
	}
}

func putOp(key []byte, value string, lease clientv3.LeaseID) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: key, Value: []byte(value), Lease: int64(lease)},
	}}
}

func deleteOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}}
}

// txnOp is a transaction in a transaction.
func txnOp(req *etcdserverpb.TxnRequest) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: req}}
}

// rangeOp reads the keys up to end, or a key; at most so many unless limit is 0.
func rangeOp(key, end []byte, limit int64) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: key, RangeEnd: end, Limit: limit},
	}}
}

// countOp counts the keys of a span, as the member that is asked knows them.
func countOp(s span) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: []byte(s.key), RangeEnd: []byte(s.end), CountOnly: true, Serializable: true},
	}}
}
