package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	r, err := a.Open(t.Context(), &cellv1.OpenRequest{Ttl: durationpb.New(ttl)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Session
}

func (a api) acquire(t *testing.T, session, name string, edit func(*cellv1.AcquireRequest)) (*cellv1.AcquireResponse, error) {
	t.Helper()
	m := &cellv1.AcquireRequest{Session: session, Name: name}
	if edit != nil {
		edit(m)
	}
	r, err := a.Acquire(t.Context(), m)
	if err != nil {
		return nil, err
	}
	return r, nil
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

// TestFirstCallsTogether: several calls may come at once on a connection that has just been made, before its
// client has heard of the member's settings.
func TestFirstCallsTogether(t *testing.T) {
	m := start(t)
	for range 20 {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		c := cellv1connect.NewCellClient(&http.Client{Transport: transport}, "http://"+m.Addr())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := c.Status(t.Context(), &cellv1.StatusRequest{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		transport.CloseIdleConnections()
	}
}

// TestDataInUse: a member whose data another process has does not wait for that one.
func TestDataInUse(t *testing.T) {
	one := start(t)
	_, err := Start(t.Context(), Config{Data: one.config.Data, Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the data of a member that runs: %v", err)
	}
}
