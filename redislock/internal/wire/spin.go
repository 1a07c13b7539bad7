//go:build unix

package wire

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"
)

// spinner reads from a connection, and looks for what comes for a moment before its goroutine parks. A caller that is
// alone with its server does little but wait to be woken, and a processor that has gone idle wakes late. One goroutine
// uses it at a time.
type spinner struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool // lookFor; made once, so that a read allocates nothing
	late bool                  // nothing has come in time for this read
	vain int                   // for so many of those in a row that have looked
	skip int                   // so many reads park at once
	b    []byte                // of this read, and what came of it
	n    int
	err  error
}

const (
	spinFor  = 50 * time.Microsecond
	mostVain = 6 // from then on, one read in 64 looks
)

// newSpinner returns nil if the connection is none of the operating system's, or if there is but one processor. What a
// program wraps around a connection may change what is read.
func newSpinner(n net.Conn) *spinner {
	if d, ok := n.(*dialed); ok {
		n = d.Conn
	}
	switch n.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil
	}
	if runtime.GOMAXPROCS(0) == 1 {
		return nil
	}
	raw, err := n.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &spinner{raw: raw}
	s.look = s.lookFor
	return s
}

// wanted reports whether the next read is to look.
func (s *spinner) wanted() bool {
	if s == nil {
		return false
	}
	s.skip--
	return s.skip < 0
}

// Read implements io.Reader. The connection's deadlines hold for it.
func (s *spinner) Read(b []byte) (int, error) {
	s.b, s.late = b, false
	err := s.raw.Read(s.look)
	s.b = nil
	switch {
	case err != nil:
		return 0, err
	case s.err != nil:
		return 0, s.err
	case s.n == 0:
		return 0, io.EOF
	}
	return s.n, nil
}

// lookFor reads, and reports whether it has. If it has not, it is called again when something has come.
func (s *spinner) lookFor(fd uintptr) bool {
	for start := time.Now(); ; runtime.Gosched() {
		s.n, s.err = syscall.Read(int(fd), s.b)
		switch {
		case s.err == syscall.EINTR:
		case s.err != syscall.EAGAIN:
			if !s.late {
				s.vain, s.skip = 0, 0
			}
			return true
		case s.late:
			return false
		case time.Since(start) >= spinFor:
			s.late, s.vain = true, min(s.vain+1, mostVain)
			s.skip = 1<<s.vain - 1
			return false
		}
	}
}
