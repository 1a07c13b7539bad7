//go:build soak

package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// impatient makes a member wait for its clients only shortly.
func impatient(c *Config) {
	c.patience = patience{
		handshake: 500 * time.Millisecond, request: time.Second, idle: time.Second, answer: 500 * time.Millisecond, call: time.Second,
	}
}

// connection is a connection of a client that does as it likes.
func connection(t *testing.T, m *Member) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// serves fails the test unless the member serves others.
func serves(t *testing.T, m *Member) {
	t.Helper()
	a := dialAs(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+m.Addr(), "")
	a.take(t, a.open(t, 30*time.Second), rand.Text(), nil)
}

// cutWithin fails the test unless the member ends a connection soon.
func cutWithin(t *testing.T, c net.Conn, what string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("%s: the connection is not cut", what)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// drip sends a text byte by byte, until the member ends the connection, and reports whether it did.
func drip(t *testing.T, c net.Conn, text string) (cut bool) {
	t.Helper()
	for i := range len(text) {
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return true
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			return true
		}
	}
	return false
}

// TestSlowloris: clients that send a request slowly, or nothing, are cut, whatever part of it is slow.
func TestSlowloris(t *testing.T) {
	m := startWith(t, impatient)
	const post = "POST /holdfast.cell.v1.Cell/Status HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for what, text := range map[string]string{
		"header": post + strings.Repeat("X-Slow: 1\r\n", 100),
		"body":   "",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := connection(t, m)
			if what == "body" {
				fmt.Fprintf(c, "%sContent-Length: 1000\r\n\r\n{", post)
				text = strings.Repeat(" ", 999)
			}
			if !drip(t, c, text) {
				t.Error("all of it was taken in")
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		cutWithin(t, connection(t, m), "nothing is sent")
	})
	t.Run("the next request", func(t *testing.T) {
		t.Parallel()
		c := connection(t, m)
		fmt.Fprintf(c, "%sContent-Length: 2\r\n\r\n{}", post)
		cutWithin(t, c, "there is no next request")
	})
	t.Run("HTTP/2 header", func(t *testing.T) {
		t.Parallel()
		f := newFramer(t, connection(t, m), nil)
		// A header that does not end: CONTINUATION frames would follow.
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header("/holdfast.cell.v1.Cell/Status"), EndHeaders: false}); err != nil {
			t.Fatal(err)
		}
		cutWithin(t, f.conn, "a header of HTTP/2 does not end")
	})
	t.Run("HTTP/2 body", func(t *testing.T) {
		t.Parallel()
		f := newFramer(t, connection(t, m), nil)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header("/holdfast.cell.v1.Cell/Status"), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the call is answered or ended", func(frame http2.Frame) bool {
			switch frame := frame.(type) {
			case *http2.RSTStreamFrame:
				return frame.StreamID == 1
			case *http2.HeadersFrame:
				return frame.StreamID == 1
			}
			return false
		})
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		ca := newAuthority(t)
		secure := startWith(t, func(c *Config) {
			impatient(c)
			c.TLS = ca.files(t, "member")
		})
		cutWithin(t, connection(t, secure), "a handshake does not begin")
		c := connection(t, secure)
		c.Write([]byte{22, 3, 1, 2, 0}) // a record that does not come
		cutWithin(t, c, "a handshake does not end")
	})
	serves(t, m)
}

// framer speaks HTTP/2 as no library does.
type framer struct {
	*http2.Framer
	conn net.Conn
}

func newFramer(t *testing.T, c net.Conn, settings []http2.Setting) *framer {
	t.Helper()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := &framer{Framer: http2.NewFramer(c, bufio.NewReader(c)), conn: c}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return f
}

// header is the header of a call by JSON.
func (f *framer) header(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path}, {"content-type", "application/json"},
	} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}

// await reads until a frame has come.
func (f *framer) await(t *testing.T, what string, is func(http2.Frame) bool) {
	t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if is(frame) {
			return
		}
	}
}

// TestDoesNotRead: a client that asks and does not read the answers is cut.
func TestDoesNotRead(t *testing.T) {
	m := startWith(t, impatient)
	a := dial(m)
	s := a.open(t, 10*time.Minute)
	for i := range 100 {
		a.take(t, s, fmt.Sprintf("%0500d", i), func(r *cellv1.AcquireRequest) { r.Note = strings.Repeat("n", 1000) })
	}
	t.Run("HTTP/1", func(t *testing.T) {
		t.Parallel()
		c := connection(t, m)
		c.(*net.TCPConn).SetReadBuffer(4096)
		const ask = "POST /holdfast.cell.v1.Locks/List HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
		c.SetWriteDeadline(time.Now().Add(20 * time.Second))
		for {
			if _, err := io.WriteString(c, strings.Repeat(ask, 100)); isTimeout(err) {
				t.Fatal("the member waits for a client that does not read")
			} else if err != nil {
				return // cut
			}
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		f := newFramer(t, connection(t, m), []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}) // nothing may be sent
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header("/holdfast.cell.v1.Locks/List"), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteData(1, true, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		f.await(t, "the call is not cut", func(frame http2.Frame) bool {
			r, ok := frame.(*http2.RSTStreamFrame)
			return ok && r.StreamID == 1
		})
	})
	serves(t, m)
}

// TestLargeRequests: what is too large is refused before it costs anything.
func TestLargeRequests(t *testing.T) {
	m := start(t)
	a := dial(m)
	s := a.open(t, 30*time.Second)
	huge := strings.Repeat("n", 1<<20)
	// With a name of 1 MB the request itself is too large; with one of 400 kB the name is.
	for size, want := range map[int]connect.Code{1 << 20: connect.CodeResourceExhausted, 400 << 10: connect.CodeInvalidArgument} {
		name := huge[:size]
		_, err := a.acquire(t, s, name, nil)
		for what, err := range map[string]error{
			"acquire": err,
			"inspect": second(a.Inspect(t.Context(), &cellv1.InspectRequest{Name: name})),
			"release": second(a.Release(t.Context(), &cellv1.ReleaseRequest{Session: s, Locks: []*cellv1.Release{{Name: name}}})),
			"note":    second(a.Open(t.Context(), &cellv1.OpenRequest{Note: name})),
			"path":    second(a.files.Put(t.Context(), &cellv1.PutRequest{Path: name})),
			"session": second(a.Close(t.Context(), &cellv1.CloseRequest{Session: name})),
			"sequencer": second(a.CheckSequencer(t.Context(), &cellv1.CheckSequencerRequest{
				Sequencer: "holdfast:1:" + name,
			})),
			"cursor": second(a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: s, Cursor: name})),
		} {
			if connect.CodeOf(err) != want || len(err.Error()) > 1000 {
				t.Errorf("%s of %d bytes: %.300v", what, size, err)
			}
		}
	}
	// The same packed: it is small until it is unpacked.
	packed := cellv1connect.NewLocksClient(http.DefaultClient, "http://"+m.Addr(), connect.WithSendGzip())
	if _, err := packed.Inspect(t.Context(), &cellv1.InspectRequest{Name: strings.Repeat("n", 64<<20)}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("64 MiB that were packed: %.300v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+m.Addr()+"/holdfast.cell.v1.Cell/Status", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Large", huge[:64<<10])
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB: %s", resp.Status)
	}
	serves(t, m)
}

// TestSequencerHeader: a call that carries a sequencer is refused unless its hold stands, and one that is forged is of
// no use.
func TestSequencerHeader(t *testing.T) {
	m := start(t)
	a := dial(m)
	s := a.open(t, 30*time.Second)
	got := a.take(t, s, "job", nil)
	with := func(sequencer, path, body string) answer {
		return call(t, m, path, false, "", body, http.Header{sequencerHeader: {sequencer}})
	}
	put := func(sequencer, contents string) answer {
		return with(sequencer, cellv1connect.FilesPutProcedure, `{"path": "out", "contents": "`+contents+`"}`)
	}
	if r := put(got.Sequencer, "MQ=="); r != (answer{}) {
		t.Fatalf("a sequencer whose hold stands: %v", r)
	}
	stale := answer{"failed_precondition", "STALE"}
	for _, forged := range []string{
		strings.Replace(got.Sequencer, fmt.Sprint(got.Token), fmt.Sprint(got.Token+1024), 1),
		strings.Replace(got.Sequencer, fmt.Sprint(got.Token), fmt.Sprint(got.Token-1), 1),
		strings.Replace(got.Sequencer, "job", "other", 1),
	} {
		if forged == got.Sequencer {
			t.Fatalf("%s is as it was", forged)
		}
		if r := put(forged, "Mg=="); r != stale {
			t.Errorf("%s: %v", forged, r)
		}
	}
	if r := put("nonsense", "Mg=="); r != (answer{"invalid_argument", "INVALID"}) {
		t.Errorf("nonsense: %v", r)
	}
	if r := a.release(t, s, &cellv1.Release{Name: "job", Token: got.Token}); r != 0 {
		t.Fatal(r)
	}
	for path, body := range map[string]string{
		cellv1connect.FilesPutProcedure:      `{"path": "out", "contents": "Mg=="}`,
		cellv1connect.FilesDeleteProcedure:   `{"path": "out"}`,
		cellv1connect.LocksAcquireProcedure:  `{"session": "` + s + `", "name": "next"}`,
		cellv1connect.LocksInspectProcedure:  `{"name": "job"}`,
		cellv1connect.SessionsCloseProcedure: `{"session": "` + s + `"}`,
	} {
		if r := with(got.Sequencer, path, body); r != stale {
			t.Errorf("%s with a sequencer that is stale: %v", path, r)
		}
	}
	r, err := a.files.Get(t.Context(), &cellv1.GetRequest{Path: "out"})
	if err != nil || string(r.Contents) != "1" {
		t.Errorf("the contents are %v, %v", r, err)
	}
}

// limited starts a member, and returns clients of a principal with these limits, and of one with the usual ones.
func limited(t *testing.T, l limits) (m *Member, a, other api) {
	t.Helper()
	p := newPeople(t)
	small, usual := p.add(t, "limited", grant{"", toWrite}), p.add(t, "other", grant{"", toWrite})
	p.all["limited"].Limits = l
	p.write(t)
	m = startWith(t, func(c *Config) { c.Principals = p.file })
	return m, dialAs(http.DefaultClient, "http://"+m.Addr(), small), dialAs(http.DefaultClient, "http://"+m.Addr(), usual)
}

// TestQuotaOfClosedNames: a name that a minimum hold keeps closed counts once, while it is held and afterwards,
// until it opens. TestMirrorFollows holds the count against that of a member that reads all anew.
func TestQuotaOfClosedNames(t *testing.T) {
	_, a, _ := limited(t, limits{"locks": 3})
	ask := func(session, name string, minimum time.Duration) (*cellv1.AcquireResponse, error) {
		return a.acquire(t, session, name, func(m *cellv1.AcquireRequest) { m.MinHold = durationpb.New(minimum) })
	}
	refused := func(when, session string) {
		t.Helper()
		if _, err := ask(session, "one more", 0); reasonOf(err) != cellv1.Reason_REASON_QUOTA {
			t.Errorf("%s: a fourth lock: %v", when, err)
		}
	}
	s := a.open(t, 30*time.Second)
	minima := map[string]time.Duration{"a": time.Hour, "b": time.Hour, "soon": 2 * time.Second}
	tokens := map[string]int64{}
	for name, minimum := range minima {
		r, err := ask(s, name, minimum)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tokens[name] = r.Token
	}
	refused("three are held", s)
	for name, token := range tokens {
		a.release(t, s, &cellv1.Release{Name: name, Token: token})
	}
	refused("three are closed", s)
	if _, err := a.Close(t.Context(), &cellv1.CloseRequest{Session: s}); err != nil {
		t.Fatal(err)
	}
	s = a.open(t, 30*time.Second)
	refused("their session is over", s)
	for {
		_, err := ask(s, "one more", 0)
		if err == nil {
			break
		}
		if reasonOf(err) != cellv1.Reason_REASON_QUOTA || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := ask(s, "and another", 0); reasonOf(err) != cellv1.Reason_REASON_QUOTA {
		t.Errorf("one name has opened, and then two more are taken: %v", err)
	}
}

// TestQuotas: a principal has no more than it may have, and others are none the worse.
func TestQuotas(t *testing.T) {
	_, a, b := limited(t, limits{"sessions": 3, "locks": 4, "nodes": 2, "bytes": 10})
	quota := func(what string, err error) {
		t.Helper()
		if reasonOf(err) != cellv1.Reason_REASON_QUOTA || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
	var own []string
	for range 3 {
		own = append(own, a.open(t, 30*time.Second))
	}
	_, err := a.opened(t)
	quota("a fourth session", err)
	his := b.open(t, 30*time.Second)
	b.take(t, his, "wanted", nil)
	place := func(by api, session, request string) error {
		_, err := by.acquire(t, session, "wanted", func(m *cellv1.AcquireRequest) { m.Request, m.Queue = request, true })
		return err
	}
	for i := range 2 {
		if err := place(a, own[i], "r"); err != nil {
			t.Fatal(err)
		}
	}
	if err := place(b, his, "more"); err != nil {
		t.Errorf("another principal's place: %v", err)
	}
	for i := range 2 {
		a.take(t, own[0], fmt.Sprint("n", i), nil)
	}
	_, err = a.acquire(t, own[1], "n2", nil)
	quota("a fifth lock", err)
	b.take(t, his, "n2", nil)
	a.release(t, own[0], &cellv1.Release{Name: "n0"})
	a.take(t, own[0], "n3", nil)

	for i, text := range []string{"12345", "1234"} {
		a.mustWrite(t, fmt.Sprint("p", i), text)
	}
	_, err = a.write(t, "p2", "", nil)
	quota("a third node", err)
	_, err = a.write(t, "p1", "123456", nil)
	quota("an eleventh byte", err)
	_, err = b.write(t, "p1", "123456", nil)
	quota("an eleventh byte in the same node by another", err)
	a.mustWrite(t, "p0", "1")
	a.mustWrite(t, "p1", "123456789")
	b.mustWrite(t, "p2", strings.Repeat("x", 100))
	if _, err := a.Close(t.Context(), &cellv1.CloseRequest{Session: own[2]}); err != nil {
		t.Fatal(err)
	}
	a.open(t, 30*time.Second)
}

// TestLanes: a principal that calls too often is refused, and keeps its sessions and gives back its locks all the
// same; another principal notices nothing.
func TestLanes(t *testing.T) {
	_, a, b := limited(t, limits{"requests": 5, "sessions": 10})
	s := a.open(t, 30*time.Second)
	got := a.take(t, s, "job", nil)
	refused := 0
	for range 50 {
		if _, err := a.Inspect(t.Context(), &cellv1.InspectRequest{Name: "job"}); reasonOf(err) == cellv1.Reason_REASON_QUOTA {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Inspect(t.Context(), &cellv1.InspectRequest{Name: "job"}); err != nil {
			t.Fatalf("another principal: %v", err)
		}
	}
	if refused < 30 {
		t.Errorf("of 50 calls at once only %d are refused", refused)
	}
	// The next ordinary call would be refused: these are not.
	for range 20 {
		if _, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: s, Now: true}); err != nil {
			t.Fatalf("a renewal: %v", err)
		}
	}
	if r := a.release(t, s, &cellv1.Release{Name: "job", Token: got.Token}); r != 0 {
		t.Errorf("a release: %v", r)
	}
}

// TestTombstonesAreBounded: who withdraws requests that were never made leaves no more than its pace allows.
func TestTombstonesAreBounded(t *testing.T) {
	m, b, _ := limited(t, limits{"requests": 20, "sessions": 10})
	tombstones := func() int {
		m.front.mirror.mu.Lock()
		defer m.front.mirror.mu.Unlock()
		return len(m.front.mirror.tombstones)
	}
	asked := 0
	never := func(n int) (all []*cellv1.Release) { // each another one
		for range n {
			asked++
			all = append(all, &cellv1.Release{Name: fmt.Sprintf("job/%d", asked), Request: fmt.Sprintf("never%d", asked)})
		}
		return all
	}
	s := b.open(t, 30*time.Second)
	got := b.take(t, s, "mine", nil)
	mine := &cellv1.Release{Name: "mine", Token: got.Token}
	out, err := b.Release(t.Context(), &cellv1.ReleaseRequest{Session: s, Locks: append(never(20), mine)})
	if err != nil || out.Outcomes[20] != 0 {
		t.Errorf("with a right: %v, %v", out, err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Release(soon, &cellv1.ReleaseRequest{Session: s, Locks: never(20)}); err == nil {
		t.Error("twice as many as the principal's pace allows within a second are withdrawn at once")
	}
	if n := tombstones(); n != 20 {
		t.Errorf("%d tombstones, 20 are right", n)
	}
}

// TestCrowd: there are no more connections than there may be, and one that has ended makes room.
func TestCrowd(t *testing.T) {
	m := startWith(t, func(c *Config) { c.Connections = 3 })
	var all []net.Conn
	for range 3 {
		all = append(all, connection(t, m))
	}
	fourth := connection(t, m)
	fourth.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := fourth.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a fourth connection is served: %d, %v", n, err)
	}
	fourth.Close()
	all[0].Close()
	soon(t, "a connection has ended, and there is no room", func() bool {
		c, err := net.Dial("tcp", m.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.Contains(line, "200")
	})
}
