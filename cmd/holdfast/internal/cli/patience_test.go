//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/redislock"
)

// TestMayRetry: what a store may soon be able to do is tried again. What it will not, and what cannot be
// reached, is not.
func TestMayRetry(t *testing.T) {
	const never, withWait, always = "never", "with -w", "always"
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.ECONNREFUSED, never},
		{syscall.EHOSTUNREACH, never},
		{errors.New("no such database"), never},
		{&redislock.ServerError{Text: "WRONGPASS invalid username-password pair"}, never},
		{status.Error(codes.Unavailable, "transport: Error while dialing: connection refused"), never},
		{status.Error(codes.Unavailable, "transport: authentication handshake failed: tls: failed to verify certificate"), never},
		{status.Error(codes.Unauthenticated, "wrong password"), never},
		{context.DeadlineExceeded, withWait},
		{io.EOF, withWait},
		{fmt.Errorf("%w: %w", syscall.ECONNREFUSED, redislock.ErrFailover), withWait},
		{errors.New("a: connection refused; b: ValidateConnect failed: read only connection"), withWait},
		{status.Error(codes.DeadlineExceeded, "late"), withWait},
		{syscall.EAGAIN, always},
		{syscall.ECONNRESET, always},
		{&redislock.ServerError{Text: "ERR max number of clients reached"}, always},
		{&redislock.ServerError{Text: "LOADING Redis is loading the dataset in memory"}, always},
		{status.Error(codes.Unavailable, "etcdserver: no leader"), always},
		{status.Error(codes.ResourceExhausted, "etcdserver: too many requests"), always},
	} {
		err := fmt.Errorf("cannot open it: %w", c.err)
		got := never
		switch {
		case patience{}.mayRetry(err):
			got = always
		case patience{wait: time.Second}.mayRetry(err):
			got = withWait
		}
		if got != c.want {
			t.Errorf("%v: tried again %s, want %s", c.err, got, c.want)
		}
		if (patience{none: true, wait: time.Second}).mayRetry(err) {
			t.Errorf("%v: tried again in spite of -n", c.err)
		}
	}
}
