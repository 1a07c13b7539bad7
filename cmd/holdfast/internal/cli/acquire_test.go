//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/zklock"
)

// TestMayPass: what a store may soon be able to do is tried again. What it will not, and what cannot be reached, is
// not.
func TestMayPass(t *testing.T) {
	for want, errs := range map[bool][]error{
		false: {
			syscall.ECONNREFUSED, syscall.EHOSTUNREACH, errors.New("no such database"),
			&redislock.ServerError{Text: "WRONGPASS invalid username-password pair"},
			status.Error(codes.Unavailable, "transport: Error while dialing: connection refused"),
			status.Error(codes.Unavailable, "transport: authentication handshake failed: tls: failed to verify certificate"),
			status.Error(codes.Unauthenticated, "wrong password"),
		},
		true: {
			context.DeadlineExceeded, io.EOF, syscall.EAGAIN, syscall.ECONNRESET, zklock.ErrHungUp,
			fmt.Errorf("%w: %w", syscall.ECONNREFUSED, redislock.ErrFailover),
			errors.New("a: connection refused; b: ValidateConnect failed: read only connection"),
			&redislock.ServerError{Text: "ERR max number of clients reached"},
			&redislock.ServerError{Text: "LOADING Redis is loading the dataset in memory"},
			status.Error(codes.DeadlineExceeded, "late"), status.Error(codes.Unavailable, "etcdserver: no leader"),
			status.Error(codes.ResourceExhausted, "etcdserver: too many requests"),
		},
	} {
		for _, err := range errs {
			if mayPass(fmt.Errorf("cannot open it: %w", err)) != want {
				t.Errorf("%v: tried again %t, want %t", err, !want, want)
			}
		}
	}
}
