//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
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
