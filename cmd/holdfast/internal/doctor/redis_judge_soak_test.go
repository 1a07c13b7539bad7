//go:build soak

package doctor

import (
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// between stands between a client and a server on the way back: what it makes of
// the server's answers is what the client gets. It returns its address.
func between(t *testing.T, server string, change func([]byte) []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go pass(upstream, client, func(b []byte) []byte { return b })
			go pass(client, upstream, change)
		}
	}()
	return l.Addr().String()
}

func pass(to, from net.Conn, change func([]byte) []byte) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(change(buf[:n])); err != nil {
			return
		}
	}
}

// timeReply is what the server answers to TIME.
var timeReply = regexp.MustCompile(`\*2\r\n\$10\r\n(\d{10})\r\n\$\d\r\n(\d{1,6})\r\n`)

// otherClock lets the server's clock show what a function makes of its time.
func otherClock(t *testing.T, server string, show func(time.Time) time.Time) string {
	return between(t, server, func(b []byte) []byte {
		return timeReply.ReplaceAllFunc(b, func(reply []byte) []byte {
			parts := timeReply.FindSubmatch(reply)
			seconds, _ := strconv.ParseInt(string(parts[1]), 10, 64)
			micros, _ := strconv.ParseInt(string(parts[2]), 10, 64)
			shown := show(time.Unix(seconds, micros*1000))
			digits := strconv.Itoa(shown.Nanosecond() / 1000)
			return []byte("*2\r\n$10\r\n" + strconv.FormatInt(shown.Unix(), 10) + "\r\n$" + strconv.Itoa(len(digits)) + "\r\n" + digits + "\r\n")
		})
	})
}

func TestRedisClock(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	begun := time.Now()
	for name, c := range map[string]struct {
		show func(time.Time) time.Time
		want want
	}{
		"as it is":    {func(at time.Time) time.Time { return at }, want{"server clock", OK, "same rate"}},
		"fast":        {func(at time.Time) time.Time { return at.Add(90 * time.Second) }, want{"server clock", Warning, "is 1m"}},
		"behind":      {func(at time.Time) time.Time { return at.Add(-time.Hour) }, want{"server clock", Warning, "is -"}},
		"runs faster": {func(at time.Time) time.Time { return at.Add(at.Sub(begun)) }, want{"server clock", Error, "server's clock ran "}},
		"stands":      {func(time.Time) time.Time { return begun }, want{"server clock", Error, "server's clock ran 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, examine(t, redisURL(otherClock(t, server.Addr, c.show), "")), c.want)
		})
	}
}

func TestRedisLatency(t *testing.T) {
	t.Parallel()
	server := redisOf(t, testserver.RedisOptions{})
	slowly := between(t, server.Addr, func(b []byte) []byte { time.Sleep(310 * time.Millisecond); return b })
	expect(t, examine(t, redisURL(slowly, "")), want{"latency", Warning, "round trips"}, want{"server clock", OK, ""})
}
