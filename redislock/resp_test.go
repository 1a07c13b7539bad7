package redislock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// respConn is the least Conn: one connection for commands, one for the channel.
type respConn struct {
	address string
	mu      sync.Mutex
	conn    net.Conn
	in      *bufio.Reader
}

func dialResp(t testing.TB, address string) *respConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return &respConn{address: address, conn: conn, in: bufio.NewReader(conn)}
}

func (c *respConn) Do(ctx context.Context, commands []Command) []Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	replies := make([]Reply, len(commands))
	for _, cmd := range commands {
		send(c.conn, cmd.Args...)
	}
	for i := range replies {
		value, err := receive(c.in)
		replies[i] = Reply{Value: value, Err: err}
	}
	return replies
}

// do runs one command and returns its reply, which must not be an error.
func (c *respConn) do(t testing.TB, args ...string) any {
	t.Helper()
	r := c.Do(t.Context(), []Command{{Args: args}})[0]
	if r.Err != nil {
		t.Fatalf("%q: %v", args, r.Err)
	}
	return r.Value
}

func (c *respConn) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	conn, err := net.Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	send(conn, "SUBSCRIBE", channel)
	if _, err := receive(in); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			push, err := receive(in)
			if err != nil {
				return
			}
			deliver(push.([]any)[2].(string))
		}
	}()
	return func() { conn.Close(); <-ended }, nil
}

func (c *respConn) Close() error { return c.conn.Close() }

// send writes a command; if that fails, so does reading the reply.
func send(w io.Writer, args ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	io.WriteString(w, b.String())
}

// receive reads a reply of version 2 of the protocol.
func receive(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.Atoi(rest)
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, &ServerError{strings.TrimPrefix(rest, "ERR ")}
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(in, b)
		return string(b[:n]), err
	case '*':
		items := make([]any, max(n, 0))
		for i := range items {
			if items[i], err = receive(in); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, errors.New("no reply: " + line)
}
