package cell

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// connection is closed with its client: the HTTP library closes only those that it knows to be idle.
type connection struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (c *connection) Close() error {
	c.forget()
	return c.Conn.Close()
}

// dial makes a connection, with TLS if the members have it. Whatever fails was not sent: see NotSent.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &connection{raw, context.AfterFunc(c.life, func() { raw.Close() })}
	if c.tls == nil {
		return conn, nil
	}
	config := c.tls()
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return secure, nil
}

// bearer says in each call who the client is, if that has a token.
type bearer struct {
	next http.RoundTripper
	file string // with the token; "": it does not change

	mu    sync.Mutex
	token string
	read  time.Time // when the file was read last
}

const (
	maxToken      = 4096        // bytes
	rereadTokenIn = time.Second // at the soonest
)

// set takes a token. Its errors do not show it.
func (b *bearer) set(token string) error {
	if token == "" || len(token) > maxToken {
		return fmt.Errorf("the token has %d bytes: between 1 and %d are right", len(token), maxToken)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("the token has a character that no token has")
		}
	}
	b.token = token
	return nil
}

// reread reads the file. If it cannot be read, the token stays what it was.
func (b *bearer) reread() error {
	b.read = time.Now()
	text, err := os.ReadFile(b.file)
	if err == nil {
		err = b.set(string(bytes.TrimSpace(text)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.file, err)
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	if b.file != "" && time.Since(b.read) > rereadTokenIn {
		_ = b.reread()
	}
	token := b.token
	b.mu.Unlock()
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.next.RoundTrip(r)
}
