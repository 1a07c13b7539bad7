// Package grpcfence guards a gRPC service with fencing tokens, as fence.Handler guards one for HTTP:
// the client sends the sequencer of the lease under which it acts, and the server refuses a call
// under a hold that a newer one has replaced. See package fence for why that is needed, and for the
// rules.
//
// The client has the interceptors of [UnaryClient] and [StreamClient], and names the lease by
// [WithLease]:
//
//	conn, err := grpc.NewClient(addr, …,
//		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClient()),
//		grpc.WithChainStreamInterceptor(grpcfence.StreamClient()))
//	…
//	err = lock.Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
//		_, err := orders.Ship(grpcfence.WithLease(ctx, lease), request)
//		return err
//	})
//
// The server has those of a [Server]:
//
//	guard := grpcfence.NewServer(&grpcfence.Options{Check: locks.CheckSequencer})
//	grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary), grpc.ChainStreamInterceptor(guard.Stream))
//
// # On the wire
//
// The sequencer is the metadata [Key], in the form of Lease.Sequencer, for example
// "hf1:x:42:orders%2F42". The codes of a refusal, each with a google.rpc.ErrorInfo of the domain
// [Domain], whose reason tells apart what has the same code:
//
//	code                  reason              HTTP  meaning
//	FAILED_PRECONDITION   STALE_HOLD          409   a newer hold has used the resource, or the hold is
//	                                                gone: the client has lost its lock, and must not
//	                                                retry under the same hold
//	INVALID_ARGUMENT      SEQUENCER_REQUIRED  428   the metadata is missing
//	INVALID_ARGUMENT      SEQUENCER_INVALID   400   it is malformed or given twice, or its hold cannot
//	                                                be fenced (no token, a semaphore)
//	PERMISSION_DENIED     WRONG_HOLD          403   another lock's, or a shared hold where an exclusive
//	                                                one is needed
//	UNAVAILABLE           HOLD_UNCHECKED      503   Check could not tell: the client may retry under the
//	                                                same hold
//
// [IsStale] reads the first of them on the client's side.
package grpcfence

// Key is the key of the metadata with the sequencer: that of fence.Header.
const Key = "holdfast-sequencer"

// Domain is the domain of the google.rpc.ErrorInfo of a refusal.
const Domain = "holdfast"

// The reasons of a refusal, in its google.rpc.ErrorInfo.
const (
	ReasonStale     = "STALE_HOLD"
	ReasonRequired  = "SEQUENCER_REQUIRED"
	ReasonInvalid   = "SEQUENCER_INVALID"
	ReasonWrongHold = "WRONG_HOLD"
	ReasonUnchecked = "HOLD_UNCHECKED"
)
