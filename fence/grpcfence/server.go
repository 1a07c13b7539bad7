package grpcfence

import (
	"context"
	"errors"
	"strconv"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Options are the options of a [Server]. The zero value of each field is its default.
type Options struct {
	// Name returns the name of the lock that a call needs, as the store knows it, with the client's
	// prefix. Request is the message of a unary call, and nil of a stream. A sequencer of another
	// name is refused. If it returns a name that no lock can have, such as "", every sequencer is.
	//
	// Without it any name is accepted and is itself the resource: that serves only where clients are
	// trusted to send the sequencer of the right lock.
	Name func(ctx context.Context, method string, request any) string
	// Reads reports whether a call of the method ("/shop.Orders/Get") only reads, as shared holds
	// may. Nil: none does.
	Reads func(method string) bool
	// Guards reports whether calls of the method are guarded at all. Nil: all are, those of health
	// checks and reflection too.
	Guards func(method string) bool
	// Optional lets calls without the metadata pass, unguarded, while clients are moved to sending it.
	Optional bool
	// Check is asked whether a sequencer is current before it may raise a mark: see
	// fence.HandlerOptions.Check. Nil: every token is believed.
	Check func(ctx context.Context, sequencer string) error
	// Gates keep the marks. Nil: the server's own, kept for ever. Set them to share them with others,
	// or to use fence.Gates.Do in the methods.
	Gates *fence.Gates
}

// Server has the interceptors of a server. What holds of fence.Handler holds of it: a process knows
// the calls that it has seen itself; a call that was admitted may still be at work when a newer one
// is; and sequencers are not signed, so put it behind authentication, and set Check.
type Server struct {
	options Options
	guard   fence.Guard
}

// NewServer returns the interceptors of a server. Nil options mean the defaults.
func NewServer(o *Options) *Server {
	s := &Server{}
	if o != nil {
		s.options = *o
	}
	s.guard.Check, s.guard.Gates = s.options.Check, s.options.Gates
	return s
}

// Unary is the interceptor of unary calls. The method finds the sequencer by fence.FromContext.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	sequencer, _, err := s.admit(ctx, info.FullMethod, req)
	if err != nil {
		return nil, err
	}
	if sequencer != nil {
		ctx = fence.NewContext(ctx, *sequencer)
	}
	return next(ctx, req)
}

// Stream is the interceptor of streams. The sequencer is admitted when the stream begins, and again
// with each message that the client sends: a stream is refused once a newer hold has come.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	sequencer, again, err := s.admit(ss.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	if sequencer == nil {
		return next(srv, ss)
	}
	return next(srv, &serverStream{ss, fence.NewContext(ss.Context(), *sequencer), again})
}

// admit reads the metadata and adopts its token. It returns no sequencer for a call that is not
// guarded. Again admits the same once more.
func (s *Server) admit(ctx context.Context, method string, request any) (sequencer *driver.Sequencer, again func() error, err error) {
	if s.options.Guards != nil && !s.options.Guards(method) {
		return nil, nil, nil
	}
	values := metadata.ValueFromIncomingContext(ctx, Key)
	switch {
	case len(values) == 0 && s.options.Optional:
		return nil, nil, nil
	case len(values) == 0:
		return nil, nil, refusal(codes.InvalidArgument, ReasonRequired,
			"the metadata "+Key+" is required: the sequencer of the lease under which you act", nil).Err()
	case len(values) > 1:
		return nil, nil, refusal(codes.InvalidArgument, ReasonInvalid, "the metadata "+Key+" must be given once", nil).Err()
	}
	use := fence.Use{Reads: s.options.Reads != nil && s.options.Reads(method)}
	if s.options.Name != nil {
		use.Name, use.Named = s.options.Name(ctx, method, request), true
	}
	read, err := s.guard.Admit(ctx, values[0], use)
	if err != nil {
		return nil, nil, answer(err)
	}
	return &read, func() error {
		_, err := s.guard.Admit(ctx, values[0], use)
		return answer(err)
	}, nil
}

// answer returns a refusal of the guard as an error of gRPC.
func answer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fence.ErrStale):
		details := map[string]string{}
		if stale, ok := errors.AsType[*fence.StaleError](err); ok {
			details["resource"] = stale.Resource
			details["token"] = strconv.FormatInt(int64(stale.Token), 10)
			details["mark"] = strconv.FormatInt(int64(stale.Mark), 10)
		}
		return refusal(codes.FailedPrecondition, ReasonStale, err.Error(), details).Err()
	case errors.Is(err, fence.ErrWrongHold):
		return refusal(codes.PermissionDenied, ReasonWrongHold, err.Error(), nil).Err()
	case errors.Is(err, fence.ErrUnchecked):
		return refusal(codes.Unavailable, ReasonUnchecked, err.Error(), nil).Err()
	}
	return refusal(codes.InvalidArgument, ReasonInvalid, Key+": "+err.Error(), nil).Err()
}

// refusal returns the status of a refusal.
func refusal(code codes.Code, reason, text string, details map[string]string) *status.Status {
	plain := status.New(code, text)
	s, err := plain.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: details})
	if err != nil {
		return plain
	}
	return s
}

// IsStale reports whether a call was refused because its hold is over: a newer one has used the
// resource, or the lease was lost before the call was made. The work must not be retried under the
// same hold.
func IsStale(err error) bool { return Reason(err) == ReasonStale }

// Reason returns the reason of a refusal by this package, or "" of any other error.
func Reason(err error) string {
	s, ok := status.FromError(err)
	if !ok {
		return ""
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return info.Reason
		}
	}
	return ""
}

type serverStream struct {
	grpc.ServerStream
	ctx   context.Context
	again func() error
}

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.again()
}
