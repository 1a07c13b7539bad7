//go:build unix

package wire

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"
)

// spinFor is how long a caller that is alone asks for its reply without waiting. A goroutine that waits is woken
// by way of the kernel and of the scheduler, which takes longer than a server in the same network needs.
const spinFor = 50 * time.Microsecond

// A caller does not ask where mostMissed in a row have asked in vain, but for one request of each tryAgain: the
// server is farther away, or busy.
const (
	mostMissed = 4
	tryAgain   = 64
)

// spinner reads from a connection without waiting. Only the reader uses it.
type spinner struct {
	raw    syscall.RawConn // nil: it cannot
	read   func(fd uintptr) bool
	into   []byte
	n      int
	err    error
	missed int
}

func newSpinner(n net.Conn) *spinner {
	s := &spinner{}
	if c, ok := n.(syscall.Conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	s.read = func(fd uintptr) bool {
		s.n, s.err = syscall.Read(int(fd), s.into)
		return true
	}
	return s
}

// spin reads into b what comes within spinFor. It returns 0 and no error if nothing has come.
func (s *spinner) spin(b []byte) (int, error) {
	if s.raw == nil {
		return 0, nil
	}
	if s.missed >= mostMissed {
		if s.missed++; s.missed%tryAgain != 0 {
			return 0, nil
		}
	}
	s.into = b
	for began := time.Now(); ; {
		err := s.raw.Read(s.read)
		switch {
		case err != nil: // such as a deadline that has passed
			return 0, err
		case s.n > 0:
			s.missed = 0
			return s.n, nil
		case s.err == nil:
			return 0, io.EOF
		case s.err != syscall.EAGAIN && s.err != syscall.EINTR:
			return 0, s.err
		case time.Since(began) >= spinFor:
			s.missed++
			return 0, nil
		}
		runtime.Gosched()
	}
}
