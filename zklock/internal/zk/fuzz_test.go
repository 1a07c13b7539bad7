package zk

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func stat(e *encoder, s Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int64(0)
	e.int64(s.EphemeralOwner)
	e.int32(0)
	e.int32(0)
	e.int64(0)
}

// Whatever a server sends, the reader ends with an error and every operation gets an answer.
func FuzzReader(f *testing.F) {
	frame := func(xid int32, zxid int64, code Code, body []byte) []byte {
		var e encoder
		e.int32(0)
		e.int32(xid)
		e.int64(zxid)
		e.int32(int32(code))
		e.b = append(e.b, body...)
		e.endFrame(0)
		return e.b
	}
	var ev encoder
	ev.int32(int32(NodeDeleted))
	ev.int32(3)
	ev.string("/d")
	var st encoder
	stat(&st, Stat{Czxid: 1})
	good := frame(1, 7, 0, st.b)
	f.Add(good)
	f.Add(append(frame(xidEvent, -1, 0, ev.b), good...))
	f.Add(append(append(frame(xidPing, 5, 0, nil), frame(xidSetWatches, 5, 0, nil)...), frame(1, 7, NoNode, nil)...))
	f.Add(frame(xidAuth, 0, AuthFailed, nil))
	f.Add(frame(1, 7, SessionExpired, nil))
	f.Add(frame(1, 7, SessionMoved, nil))
	f.Add(frame(2, 7, 0, st.b))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0x50, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Session{config: Config{Clock: driver.HostClock}, timeout: time.Minute, watches: watchTable{}}
		s.cancel = func() {}
		client, server := net.Pipe()
		server.Close()
		c := &conn{s: s, nc: fuzzConn{client, bytes.NewReader(b)}, wake: make(chan struct{}, 1), over: make(chan struct{})}
		c.r = newReader(c.nc)
		s.conn = c
		w := NewWatch(func(Event) {})
		calls := s.send(Exists("/d", w))
		c.next(false, nil)
		err := c.read()
		if err == nil {
			t.Fatal("the reader ended without an error")
		}
		s.suspend(c, err)
		select {
		case <-calls.done:
		default:
			t.Fatal("an operation got no answer")
		}
		if e := s.watches[watchKey{"/d", false}]; e != nil && e.arming != 0 {
			t.Errorf("%d operations seem to be on their way", e.arming)
		}
	})
}

// fuzzConn reads from memory.
type fuzzConn struct {
	net.Conn
	r io.Reader
}

func (c fuzzConn) Read(b []byte) (int, error)      { return c.r.Read(b) }
func (c fuzzConn) SetReadDeadline(time.Time) error { return nil }

func TestInfo(t *testing.T) {
	got := parseInfo("Zookeeper version: 3.8.0-1, built on x\nReceived: 9\nZxid: 0x100000003\nMode: leader\nNode count: 5\n")
	want := Info{Role: Leader, Version: "3.8.0-1", Zxid: 1<<32 + 3}
	if got != want {
		t.Errorf("%+v", got)
	}
	if r := parseInfo("This ZooKeeper instance is not currently serving requests\n").Role; r != NotServing {
		t.Errorf("role %q", r)
	}
}

// TestFrames: a frame that is announced and does not come takes no memory, and one that comes is read whole.
func TestFrames(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readFrame(strings.NewReader("\x00\x3f\xff\xffabcd"), nil)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; err == nil || got > 1<<20 {
		t.Errorf("4 bytes of 4 MiB: %v, and %d bytes of memory", err, got)
	}
	if b, err := readFrame(strings.NewReader("\x00\x01\x00\x01"+strings.Repeat("x", 1<<16+1)), nil); err != nil || len(b) != 1<<16+1 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
