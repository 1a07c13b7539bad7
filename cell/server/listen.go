package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// patience is how long a member waits for its clients.
type patience struct {
	handshake time.Duration // of TLS, and for the header of a request
	request   time.Duration // for all of a request
	idle      time.Duration // for the next request of a connection
	answer    time.Duration // for the client of a connection to take in anything
	call      time.Duration // for all of a call: longer than any is parked
}

var usualPatience = patience{handshake: 5 * time.Second, request: 15 * time.Second, idle: 2 * time.Minute, answer: 10 * time.Second, call: 2 * time.Minute}

// Bounds of requests.
const (
	maxHeader  = 16 << 10
	maxRequest = 512 << 10
	// maxStreams is how many calls one connection may have under way. A client opens another one for more.
	maxStreams = 250
)

// rarelyCompressed leaves nearly all answers as they are: they are not worth it.
var rarelyCompressed = connect.WithCompressMinBytes(4 << 10)

// noTable is the size of a table in which HTTP/2 puts no headers, of answers. To remember those of the last
// one costs memory for each connection, and saves some bytes of an answer that comes every ten seconds. The
// table of requests stays as it is: the first of a connection come before the client can know of another size.
const noTable = 1

// newServer returns the server of a member's clients.
func newServer(h http.Handler, p patience, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, Protocols: protocols, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: p.handshake, ReadTimeout: p.request, WriteTimeout: p.call, IdleTimeout: p.idle,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, WriteByteTimeout: p.answer,
			MaxEncoderHeaderTableSize: noTable,
		},
		ConnContext: handshake,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what strangers send is no error of ours
	}
}

// handshake begins the handshake of a connection, which the server then waits for. A goroutine of its own does it: the
// stack that it needs stays with its goroutine, and that of the server lives as long as the connection.
func handshake(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*tls.Conn); ok {
		begins := make(chan struct{})
		go func() {
			close(begins)
			c.HandshakeContext(ctx) // the server gets its error
		}()
		<-begins
	}
	return ctx
}

// withTLS returns a listener that speaks TLS, with the settings as they are at each connection.
func (m *Member) withTLS(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return m.tls.Load(), nil },
		NextProtos:         []string{"h2", "http/1.1"},
	})
}

// setTLS makes the settings for clients of the certificates as they are now. All connections share them.
func (m *Member) setTLS() {
	next := m.certificates.Config()
	next.NextProtos = []string{"h2", "http/1.1"}
	next.SessionTicketsDisabled = true // each connection shows a certificate that is good now
	if m.config.TLS.CA != "" {
		next.ClientCAs, next.ClientAuth = next.RootCAs, tls.RequireAndVerifyClientCert
		if m.config.Principals != "" { // clients may have a token instead of a certificate
			next.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	m.tls.Store(next)
}
