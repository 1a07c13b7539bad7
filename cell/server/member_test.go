package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// api is a client of one member.
type api struct {
	cellv1connect.SessionsClient
	cellv1connect.LocksClient
	files cellv1connect.FilesClient
	cell  cellv1connect.CellClient
}

func start(t *testing.T) *Member { return startWith(t, nil) }

// startWith starts a member that is configured otherwise.
func startWith(t *testing.T, edit func(*Config)) *Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := Config{
		Data: t.TempDir() + "/data", Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if edit != nil {
		edit(&c)
	}
	m, err := startAs(ctx, t, c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func dial(m *Member) api { return dialAs(http.DefaultClient, "http://"+m.Addr(), "") }

// dialAs returns a client that says who it is by a token, if it is not "".
func dialAs(h *http.Client, url, token string) api {
	o := connect.WithInterceptors(says{token})
	return api{
		cellv1connect.NewSessionsClient(h, url, o),
		cellv1connect.NewLocksClient(h, url, o),
		cellv1connect.NewFilesClient(h, url, o),
		cellv1connect.NewCellClient(h, url, o),
	}
}

// says says in each call who the client is.
type says struct{ token string }

func (s says) say(h http.Header) {
	if s.token != "" {
		h.Set("Authorization", "Bearer "+s.token)
	}
}

func (s says) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		s.say(r.Header())
		return next(ctx, r)
	}
}

func (s says) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		s.say(conn.RequestHeader())
		return conn
	}
}

func (says) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (a api) open(t *testing.T, ttl time.Duration) string {
	t.Helper()
	r, err := a.Open(t.Context(), connect.NewRequest(&cellv1.OpenRequest{Ttl: durationpb.New(ttl)}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg.Session
}

func (a api) acquire(t *testing.T, session, name string, edit func(*cellv1.AcquireRequest)) (*cellv1.AcquireResponse, error) {
	t.Helper()
	m := &cellv1.AcquireRequest{Session: session, Name: name}
	if edit != nil {
		edit(m)
	}
	r, err := a.Acquire(t.Context(), connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// reasonOf returns the reason of a call's error.
func reasonOf(err error) cellv1.Reason {
	var e *connect.Error
	if errors.As(err, &e) {
		for _, d := range e.Details() {
			if v, err := d.Value(); err == nil {
				if p, ok := v.(*cellv1.Problem); ok {
					return p.Reason
				}
			}
		}
	}
	return cellv1.Reason_REASON_UNSPECIFIED
}

func TestOneLock(t *testing.T) {
	a := dial(start(t))
	one, two := a.open(t, 10*time.Second), a.open(t, 10*time.Second)
	got, err := a.acquire(t, one, "orders/42", nil)
	if err != nil || got.Token == 0 || got.Claim {
		t.Fatalf("a free name: %v, %v", got, err)
	}
	if again, err := a.acquire(t, one, "orders/42", nil); err != nil || again.Token != got.Token {
		t.Errorf("the same request again: %v, %v", again, err)
	}
	if _, err := a.acquire(t, two, "orders/42", nil); reasonOf(err) != cellv1.Reason_REASON_HELD {
		t.Errorf("P1: a held name: %v", err)
	}
	queued, err := a.acquire(t, two, "orders/42", func(m *cellv1.AcquireRequest) { m.Queue = true })
	if err != nil || queued.Token != 0 || queued.Ahead != 1 {
		t.Fatalf("a place: %v, %v", queued, err)
	}
	told := make(chan *cellv1.KeepAliveResponse, 1)
	go func() {
		r, err := a.KeepAlive(t.Context(), connect.NewRequest(&cellv1.KeepAliveRequest{Session: two, Cursor: "x:0"}))
		if err == nil && len(r.Msg.Events) == 0 {
			r, err = a.KeepAlive(t.Context(), connect.NewRequest(&cellv1.KeepAliveRequest{Session: two, Cursor: r.Msg.Cursor}))
		}
		if err != nil {
			t.Error(err)
			close(told)
			return
		}
		told <- r.Msg
	}()
	time.Sleep(100 * time.Millisecond)
	out, err := a.Release(t.Context(), connect.NewRequest(&cellv1.ReleaseRequest{
		Session: one, Locks: []*cellv1.Release{{Name: "orders/42", Token: got.Token}},
	}))
	if err != nil || out.Msg.Outcomes[0] != 0 {
		t.Fatalf("a release: %v, %v", out, err)
	}
	r := <-told
	t.Logf("%v", r)
	if len(r.Events) != 1 || r.Events[0].GetGranted().GetToken() <= got.Token {
		t.Errorf("P7: the one that waits is told %v", r)
	}
}

// TestStatusIsCheap: clients ask for the status when they come. Suppose that all metrics of the process were gathered for
// each of them.
func TestStatusIsCheap(t *testing.T) {
	m := start(t)
	status := func() *cellv1.StatusResponse {
		r, err := cell{m}.Status(t.Context(), connect.NewRequest(&cellv1.StatusRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg
	}
	if status().LogSync.AsDuration() <= 0 {
		t.Error("the status does not say how long a sync of the log takes")
	}
	const most = 500 // of thousands
	if n := testing.AllocsPerRun(20, func() { status() }); n > most {
		t.Errorf("the status takes %v allocations, at most %d are right", n, most)
	}
}
