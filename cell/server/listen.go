package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// patience is how long a member waits for its clients.
type patience struct {
	handshake time.Duration // of TLS, and for the header of a request
	request   time.Duration // for all of a request
	idle      time.Duration // for the next request of a connection
	answer    time.Duration // for the client to take in a part of an answer
}

var usualPatience = patience{handshake: 5 * time.Second, request: 15 * time.Second, idle: 2 * time.Minute, answer: 10 * time.Second}

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
		ReadHeaderTimeout: p.handshake, ReadTimeout: p.request, IdleTimeout: p.idle,
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

// withTLS returns a listener that speaks TLS, with the certificates as they are at each connection.
func withTLS(l net.Listener, c *certificates) net.Listener {
	return tls.NewListener(l, &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
		NextProtos:         []string{"h2", "http/1.1"},
	})
}

// certificates are what a member shows its clients, and what it wants of theirs. The files are read again when
// they have changed.
type certificates struct {
	files   TLS
	tokens  bool // clients may have a token instead of a certificate
	text    []byte
	current atomic.Pointer[tls.Config]
}

// newCertificates reads the files for the first time.
func newCertificates(c *Config) (*certificates, error) {
	all := &certificates{files: c.TLS, tokens: c.Principals != ""}
	_, err := all.read()
	return all, err
}

// read reads the files, and reports whether they have changed. While a certificate and its key do not fit,
// because only one has been replaced, everything stays as it was.
func (c *certificates) read() (changed bool, err error) {
	var all [3][]byte
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		if name == "" {
			continue
		}
		if all[i], err = os.ReadFile(name); err != nil {
			return false, err
		}
	}
	text := bytes.Join(all[:], []byte{0})
	if c.current.Load() != nil && bytes.Equal(text, c.text) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(all[0], all[1])
	if err != nil {
		return false, fmt.Errorf("%s and %s: %w", c.files.Cert, c.files.Key, err)
	}
	next := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // each connection shows a certificate that is good now
	}
	if c.files.CA != "" {
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !next.ClientCAs.AppendCertsFromPEM(all[2]) {
			return false, fmt.Errorf("%s has no certificate in PEM form", c.files.CA)
		}
		if c.tokens {
			next.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	c.text = text
	c.current.Store(next)
	return true, nil
}
