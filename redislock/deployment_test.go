//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestInFailover: that a server cannot be reached may be a fail-over. That this host has no files left, and
// what a server says, is not.
func TestInFailover(t *testing.T) {
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{dial(syscall.ECONNREFUSED), true},
		{dial(syscall.ECONNRESET), true},
		{dial(syscall.EHOSTUNREACH), true},
		{fmt.Errorf("wrapped: %w", dial(syscall.ECONNREFUSED)), true},
		{dial(syscall.EMFILE), false},
		{dial(syscall.ENFILE), false},
		{io.EOF, false},
		{&ServerError{"NOAUTH"}, false},
	} {
		got := InFailover(c.err)
		if errors.Is(got, ErrFailover) != c.want || !errors.Is(got, c.err) {
			t.Errorf("of %v: %v", c.err, got)
		}
		if again := InFailover(got); again.Error() != got.Error() {
			t.Errorf("twice: %v", again)
		}
	}
}
