//go:build unix

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestSpinner reads what has come, what comes late, a deadline and the end, as the connection does. It looks again
// when something came in time, and ever less often while nothing does.
func TestSpinner(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	testserver.Must(t, err)
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	testserver.Must(t, err)
	defer near.Close()
	far, err := l.Accept()
	testserver.Must(t, err)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // else a host with one processor has none
	s := newSpinner(near)
	if newSpinner(struct{ *net.UnixConn }{near.(*net.UnixConn)}) != nil {
		t.Error("a connection that a program has wrapped is read past the wrapper")
	}
	read := func(want string, end error, looks bool) {
		t.Helper()
		b, from := make([]byte, 8), io.Reader(near)
		if s.wanted() {
			from = s
		}
		if (from == s) != looks {
			t.Errorf("the read of %q looks: %t", want, !looks)
		}
		if n, err := from.Read(b); string(b[:n]) != want || !errors.Is(err, end) {
			t.Errorf("read %q, %v; want %q, %v", b[:n], err, want, end)
		}
	}
	far.Write([]byte("there"))
	read("there", nil, true)
	time.AfterFunc(50*time.Millisecond, func() { far.Write([]byte("late")) })
	read("late", nil, true)
	far.Write([]byte("soon"))
	read("soon", nil, false)
	near.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	read("", os.ErrDeadlineExceeded, true)
	near.SetReadDeadline(time.Time{})
	if s.skip != 3 {
		t.Errorf("after two vain reads %d reads do not look, want 3", s.skip)
	}
	far.Close()
	read("", io.EOF, false)
}
