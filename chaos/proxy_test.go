package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// echo starts a server that answers each line with the same, and returns its
// address.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String()
}

// line is a client of echo.
type line struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dialLine(t *testing.T, addr string) *line {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &line{t, c, bufio.NewReader(c)}
}

// says sends a line.
func (l *line) says(text string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l, text); err != nil {
		l.t.Fatal(err)
	}
}

// hears expects a line, or with "" that none comes for a while.
func (l *line) hears(want string) {
	l.t.Helper()
	wait := 10 * time.Second
	if want == "" {
		wait = 30 * time.Millisecond
	}
	l.SetReadDeadline(time.Now().Add(wait))
	got, _ := l.in.ReadString('\n')
	if strings.TrimSpace(got) != want {
		l.t.Errorf("heard %q, want %q", got, want)
	}
}

func TestProxyHolds(t *testing.T) {
	for _, d := range []Direction{ToServer, ToClient} {
		p := StartProxy(t, echo(t))
		a, b := dialLine(t, p.Addr), dialLine(t, p.Addr)
		a.says("subscribe")
		a.hears("subscribe")
		b.says("get")
		b.hears("get")
		p.Hold(d, "subscribe")
		a.says("one")
		a.says("two")
		b.says("three")
		b.hears("three")
		a.hears("")
		p.Hold(d, "")
		b.says("four")
		b.hears("")
		p.Heal()
		a.hears("one")
		a.hears("two")
		b.hears("four")
	}
}

func TestProxyCuts(t *testing.T) {
	p := StartProxy(t, echo(t))
	c := dialLine(t, p.Addr)
	c.says("held")
	c.hears("held")
	p.Hold(ToClient, "")
	c.says("lost")
	c.hears("")
	p.Cut()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := c.in.ReadString('\n'); err == nil {
		t.Errorf("heard %q through a connection that was cut", got)
	}
	// The system accepts a new connection and the proxy resets it, perhaps before Dial has returned.
	if again, err := net.Dial("tcp", p.Addr); err == nil {
		defer again.Close()
		again.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := again.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a new connection is kept while all are cut: %v", err)
		}
	}
	p.Heal()
	healed := dialLine(t, p.Addr)
	healed.says("back")
	healed.hears("back")
}

// TestRedirect: new connections lead to the other server, and those that there are stay.
func TestRedirect(t *testing.T) {
	p := StartProxy(t, echo(t))
	stays := dialLine(t, p.Addr)
	stays.says("before")
	stays.hears("before")
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	p.Redirect(other.Addr().String())
	dialLine(t, p.Addr)
	c, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	stays.says("after")
	stays.hears("after")
}
