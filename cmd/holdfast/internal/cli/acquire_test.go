//go:build unix

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/redislock"
)

// bubbleClock is the time of a synctest bubble.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() driver.Instant { return driver.Instant(time.Since(c.start)) }

// TestFresh: a hold whose time was over before the command began is no loss: the lock is asked for again.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := bubbleClock{time.Now()}
		c, err := holdfast.New(memlock.NewStore(&memlock.Options{Clock: clock}).Client(), &holdfast.ClientOptions{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := &runner{store: &store{Client: c}, flags: &runFlags{ttl: 30 * time.Second}}
		lock, asked := c.Mutex("x", &holdfast.Options{TTL: r.flags.ttl, RenewEvery: -1}), 0
		got, err := r.fresh(t.Context(), func(ctx context.Context) (*holdfast.Lease, error) {
			lease, err := lock.Acquire(ctx)
			if asked++; asked == 1 {
				time.Sleep(r.flags.ttl)
			}
			return lease, err
		})
		if err != nil || asked != 2 || got.Err() != nil {
			t.Errorf("the lock was asked for %d times: %v, %v", asked, got, err)
		}
	})
}

// deaf never answers a Try.
type deaf struct{ wrap.Forward }

func (deaf) Try(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, driver.Uncertain(ctx.Err())
}

func init() {
	driver.Register("silent", func(ctx context.Context, _ *url.URL) (driver.Driver, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// TestSilence: -n and -w bound how long a silent store is waited for, when it is opened and afterwards.
func TestSilence(t *testing.T) {
	for args, within := range map[string]time.Duration{
		"run -n x -- true": answerWithin, "run -w 0s x -- true": answerWithin, "run -w 9s x -- true": 9*time.Second + answerWithin,
		"run x -- true": openWithin, "ls": waitUsually, "ls -w 1s": time.Second, "show x -w 1s": time.Second,
		"break x --token 1 -w 1s": time.Second, "leader x -w 1s": time.Second, "doctor -w 1s": time.Second / 2,
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			code := Main(append([]string{"-q", "--store", "silent://x"}, strings.Fields(args)...))
			if took := time.Since(begun); code != exitUnavailable && args[0] != 'd' || took != within {
				t.Errorf("%s took %v, not %v, and ended with %d", args, took, within, code)
			}
		})
	}
	for _, f := range []*runFlags{{nonblock: true}, {wait: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			clock, begun := bubbleClock{time.Now()}, time.Now()
			d := deaf{wrap.Forward{Driver: memlock.NewStore(&memlock.Options{Clock: clock}).Client()}}
			c, err := holdfast.New(d, &holdfast.ClientOptions{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			f.until = begun.Add(f.wait)
			_, err = (&runner{store: &store{Client: c}, flags: f, lock: c.Mutex("x", nil)}).take(t.Context())
			if took := time.Since(begun); took != f.wait+answerWithin || codeOf(err) != exitUnavailable {
				t.Errorf("-w %v took %v: %v", f.wait, took, err)
			}
		})
	}
}

// TestLasting: what a store may soon be able to do is tried again; what no waiting mends is told at once.
func TestLasting(t *testing.T) {
	_, foreign := filelock.Open(t.Context(), filelock.Options{Dir: "/proc/version/locks"})
	for want, errs := range map[bool][]error{
		true: {
			foreign, &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
			status.Error(codes.Unavailable, "transport: authentication handshake failed: tls: failed to verify certificate"),
			status.Error(codes.Unavailable, "transport: Error while dialing: dial tcp: lookup x: no such host"),
			connect.NewError(connect.CodePermissionDenied, nil), status.Error(codes.Unauthenticated, "token"), syscall.EACCES,
			&redislock.ServerError{Text: "WRONGPASS invalid username-password pair"}, &pgconn.PgError{Code: "28P01"}, &mysql.MySQLError{Number: 1045},
		},
		false: {
			context.DeadlineExceeded, io.EOF, syscall.ECONNREFUSED, &redislock.ServerError{Text: "LOADING Redis is loading the dataset in memory"},
			status.Error(codes.Unavailable, "transport: Error while dialing: connection refused"),
			connect.NewError(connect.CodeUnavailable, nil), &pgconn.PgError{Code: "53300"}, &mysql.MySQLError{Number: 1040},
		},
	} {
		for _, err := range errs {
			if lasting(fmt.Errorf("cannot open it: %w", err)) != want {
				t.Errorf("%v: it lasts %t, want %t", err, !want, want)
			}
		}
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.Join(errors.New("holdfast: first"), errors.New("holdfast: second:\n\x1b"))); got != `first; second: \x1b` {
		t.Errorf("oneLine: %s", got)
	}
}
