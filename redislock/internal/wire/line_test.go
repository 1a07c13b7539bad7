package wire

import (
	"net"
	"testing"
)

func command(args ...string) []Command { return []Command{{Args: args}} }

// TestStrangeServer: what is no reply, and a reply to nothing, end the connection.
func TestStrangeServer(t *testing.T) {
	for what, answer := range map[string]string{
		"another protocol":   "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a reply to nothing": "+OK\r\n+OK\r\n",
	} {
		ours, theirs := net.Pipe()
		c := newConn(ours, silence)
		go func() {
			theirs.Read(make([]byte, 100))
			theirs.Write([]byte(answer))
		}()
		c.do(t.Context(), command("PING"))
		if c.err == nil {
			t.Errorf("%s does not end the connection", what)
		}
		theirs.Close()
	}
}
