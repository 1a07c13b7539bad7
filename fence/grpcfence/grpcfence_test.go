package grpcfence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/fence/grpcfence"
	"github.com/holdfastlock/holdfast/memlock"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The methods of a service that answers with the sequencer that was admitted: one unary, one that
// answers each message of a stream.
const (
	put  = "/shop.Orders/Put"
	edit = "/shop.Orders/Edit"
)

func admitted(ctx context.Context) *wrapperspb.StringValue {
	s, ok := fence.FromContext(ctx)
	if !ok {
		return wrapperspb.String("none")
	}
	return wrapperspb.String(s.String())
}

var service = grpc.ServiceDesc{
	ServiceName: "shop.Orders", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Put", Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.StringValue
		if err := decode(&in); err != nil {
			return nil, err
		}
		return intercept(ctx, &in, &grpc.UnaryServerInfo{FullMethod: put}, func(ctx context.Context, _ any) (any, error) {
			return admitted(ctx), nil
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Edit", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			var in wrapperspb.StringValue
			if err := s.RecvMsg(&in); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(admitted(s.Context())); err != nil {
				return err
			}
		}
	}}},
}

// serve starts a server on the loopback interface, and returns a connection to it.
func serve(t *testing.T, o *grpcfence.Options) *grpc.ClientConn {
	t.Helper()
	guard := grpcfence.NewServer(o)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.Unary), grpc.ChainStreamInterceptor(guard.Stream))
	server.RegisterService(&service, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(grpcfence.UnaryClient()), grpc.WithChainStreamInterceptor(grpcfence.StreamClient()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		group.Wait()
	})
	return conn
}

// call calls the unary method and returns the answer.
func call(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(ctx, put, wrapperspb.String("x"), &out)
	return out.Value, err
}

// held is a lease with a sequencer that a test has chosen.
type held struct {
	sequencer string
	err       error
}

func (h held) Sequencer() string { return h.sequencer }
func (h held) Err() error        { return h.err }

func sequencer(name string, mode driver.Mode, token driver.Token) string {
	return driver.Sequencer{Name: name, Mode: mode, Token: token}.String()
}

const (
	exclusive = driver.Exclusive
	shared    = driver.Shared
)

// TestCodes: the codes and reasons of each refusal, as the statuses of fence.Handler.
func TestCodes(t *testing.T) {
	x42 := sequencer("orders/42", exclusive, 42)
	named := func(name string) *grpcfence.Options {
		return &grpcfence.Options{Name: func(_ context.Context, method string, request any) string {
			if v, ok := request.(*wrapperspb.StringValue); method != put || !ok || v.Value != "x" {
				t.Errorf("Name is asked about %s of %v", method, request)
			}
			return name
		}}
	}
	checked := func(err error) *grpcfence.Options {
		return &grpcfence.Options{Check: func(context.Context, string) error { return err }}
	}
	for name, c := range map[string]struct {
		options *grpcfence.Options
		values  []string
		code    codes.Code
		reason  string
		says    string
	}{
		"admitted":            {nil, []string{x42}, codes.OK, "", x42},
		"missing":             {nil, nil, codes.InvalidArgument, grpcfence.ReasonRequired, grpcfence.Key},
		"missing, optional":   {&grpcfence.Options{Optional: true}, nil, codes.OK, "", "none"},
		"not guarded":         {&grpcfence.Options{Guards: func(m string) bool { return m != put }}, nil, codes.OK, "", "none"},
		"twice":               {nil, []string{x42, x42}, codes.InvalidArgument, grpcfence.ReasonInvalid, "once"},
		"another lock":        {named("orders/43"), []string{x42}, codes.PermissionDenied, grpcfence.ReasonWrongHold, `"orders/43"`},
		"shared read":         {&grpcfence.Options{Reads: func(m string) bool { return m == put }}, []string{sequencer("a", shared, 1)}, codes.OK, "", "hf1:s:1:a"},
		"the hold is gone":    {checked(driver.ErrNotHeld), []string{x42}, codes.FailedPrecondition, grpcfence.ReasonStale, "gone"},
		"the store is silent": {checked(errors.New("dial 10.0.0.7")), []string{x42}, codes.Unavailable, grpcfence.ReasonUnchecked, "cannot be checked"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, c.options)
			ctx := t.Context()
			for _, v := range c.values {
				ctx = metadata.AppendToOutgoingContext(ctx, grpcfence.Key, v)
			}
			text, err := call(ctx, conn)
			if err != nil {
				text = status.Convert(err).Message()
			}
			if status.Code(err) != c.code || grpcfence.Reason(err) != c.reason || !strings.Contains(text, c.says) {
				t.Errorf("%v %s %q; want %v %s with %q", status.Code(err), grpcfence.Reason(err), text, c.code, c.reason, c.says)
			}
			if strings.Contains(text, "10.0.0.7") {
				t.Errorf("the store's error was told to the client: %s", text)
			}
			if grpcfence.IsStale(err) != (c.reason == grpcfence.ReasonStale) {
				t.Errorf("IsStale(%v) is %v", err, grpcfence.IsStale(err))
			}
		})
	}
}

// TestStale: the holder before is refused, on a read too, and told by which token.
func TestStale(t *testing.T) {
	conn := serve(t, nil)
	under := func(token driver.Token) error {
		_, err := call(grpcfence.WithLease(t.Context(), held{sequencer: sequencer("a", exclusive, token)}), conn)
		return err
	}
	for i, step := range []struct {
		token driver.Token
		stale bool
	}{{1, false}, {2, false}, {1, true}, {2, false}} {
		err := under(step.token)
		if step.stale != grpcfence.IsStale(err) || !step.stale && err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if !step.stale {
			continue
		}
		info, _ := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
		if m := info.GetMetadata(); m["resource"] != "a" || m["token"] != "1" || m["mark"] != "2" {
			t.Errorf("step %d: the details are %v", i, info)
		}
	}
}

// TestStream: a stream that was admitted is refused at its next message once a newer hold has come, and
// sends nothing after its lease is over.
func TestStream(t *testing.T) {
	conn := serve(t, nil)
	open := func(l grpcfence.Lease) grpc.ClientStream {
		s, err := conn.NewStream(grpcfence.WithLease(t.Context(), l), &service.Streams[0], edit)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	exchange := func(s grpc.ClientStream) (string, error) {
		// EOF says that the server has ended the stream before; why is for RecvMsg to say.
		if err := s.SendMsg(wrapperspb.String("x")); err != nil && err != io.EOF {
			return "", err
		}
		var out wrapperspb.StringValue
		err := s.RecvMsg(&out)
		return out.Value, err
	}
	first := held{sequencer: sequencer("a", exclusive, 1)}
	older := open(first)
	if text, err := exchange(older); err != nil || text != first.sequencer {
		t.Fatalf("%q, %v", text, err)
	}
	newer := open(held{sequencer: sequencer("a", exclusive, 2)})
	if _, err := exchange(newer); err != nil {
		t.Fatal(err)
	}
	if _, err := exchange(older); !grpcfence.IsStale(err) {
		t.Errorf("the older stream: %v", err)
	}
	if _, err := exchange(open(first)); !grpcfence.IsStale(err) {
		t.Errorf("a new stream of the older hold: %v", err)
	}
	if _, err := exchange(newer); err != nil {
		t.Errorf("the newer stream: %v", err)
	}
	if err := newer.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := exchange(open(nil)); grpcfence.Reason(err) != grpcfence.ReasonRequired {
		t.Errorf("a stream without a sequencer: %v", err)
	}
}

// TestLease: calls under a real lease are admitted until it is over; then they are not made.
func TestLease(t *testing.T) {
	locks, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	conn := serve(t, &grpcfence.Options{Check: locks.CheckSequencer, Name: func(context.Context, string, any) string { return "a" }})
	lease, err := locks.Mutex("a", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := grpcfence.WithLease(t.Context(), lease)
	if text, err := call(ctx, conn); err != nil || text != lease.Sequencer() {
		t.Errorf("%q, %v", text, err)
	}
	s, err := conn.NewStream(ctx, &service.Streams[0], edit)
	if err != nil {
		t.Fatal(err)
	}
	old := lease.Sequencer()
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if _, err := call(ctx, conn); !errors.Is(err, holdfast.ErrReleased) || !grpcfence.IsStale(err) || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a call under a lease that is over: %v", err)
	}
	if err := s.SendMsg(wrapperspb.String("x")); !errors.Is(err, holdfast.ErrReleased) {
		t.Errorf("a message under a lease that is over: %v", err)
	}
	if _, err := conn.NewStream(ctx, &service.Streams[0], edit); !errors.Is(err, holdfast.ErrReleased) {
		t.Errorf("a stream under a lease that is over: %v", err)
	}
	next, err := locks.Mutex("a", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if _, err := call(grpcfence.WithLease(t.Context(), next), conn); err != nil {
		t.Error(err)
	}
	if _, err := call(grpcfence.WithLease(t.Context(), held{sequencer: old}), conn); !grpcfence.IsStale(err) {
		t.Errorf("the sequencer of the hold before: %v", err)
	}
}
