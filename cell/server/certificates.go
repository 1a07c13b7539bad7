package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

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
