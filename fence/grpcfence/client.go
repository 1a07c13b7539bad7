package grpcfence

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Lease is what a call acts under: a *holdfast.Lease.
type Lease interface {
	Sequencer() string
	Err() error // nil while the lease is trusted
}

type leaseKey struct{}

// WithLease returns a context under which calls act under the lease: the interceptors of the client
// send its sequencer. Nil: under none.
func WithLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// outgoing returns the context of a call with the sequencer. If the lease is over, it returns an
// error with the lease's, and the call is not made.
func outgoing(ctx context.Context) (context.Context, Lease, error) {
	l, _ := ctx.Value(leaseKey{}).(Lease)
	if l == nil {
		return ctx, nil, nil
	}
	if err := trusted(l); err != nil {
		return ctx, l, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy() // makes a map where there is none
	md.Set(Key, l.Sequencer())
	return metadata.NewOutgoingContext(ctx, md), l, nil
}

// trusted returns nil while the lease is, and then an error that matches the lease's by errors.Is,
// and has the code FAILED_PRECONDITION.
func trusted(l Lease) error {
	if err := l.Err(); err != nil {
		return &overError{err}
	}
	return nil
}

// overError is the end of a lease as an error of gRPC.
type overError struct{ err error }

func (e *overError) Error() string { return "grpcfence: the call is not made: " + e.err.Error() }

func (e *overError) Unwrap() error { return e.err }

// GRPCStatus implements what package status looks for.
func (e *overError) GRPCStatus() *status.Status {
	return refusal(codes.FailedPrecondition, ReasonStale, e.Error(), nil)
}

// UnaryClient returns the interceptor of unary calls. A call under [WithLease] sends the lease's
// sequencer. It is not made if the lease is over: the error is then FAILED_PRECONDITION, and wraps
// the lease's. Calls without a lease go through as they are.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		ctx, _, err := outgoing(ctx)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns the interceptor of streams, as [UnaryClient]. While the stream is open, no
// message is sent after the lease is over.
func StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		ctx, l, err := outgoing(ctx)
		if err != nil {
			return nil, err
		}
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil || l == nil {
			return s, err
		}
		return &clientStream{s, l}, nil
	}
}

type clientStream struct {
	grpc.ClientStream
	lease Lease
}

// SendMsg implements grpc.ClientStream.
func (s *clientStream) SendMsg(m any) error {
	if err := trusted(s.lease); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}
