// Package certs makes TLS settings from certificate files, which it reads again for each
// handshake. So a program that runs for longer than its certificates are valid can connect
// after they were replaced.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Files names files in PEM form; those that are "" are not used.
type Files struct {
	CA        string // authorities to trust, instead of the system's
	Cert, Key string // the client's certificate and its private key: both or none
}

// Source returns the TLS settings for each handshake. It is safe for concurrent use.
type Source struct {
	files Files
	mu    sync.Mutex
	last  tls.Config // from the files as they could be read last
}

// New reads the files for the first time. Its errors name the URL parameters hf.ca,
// hf.cert and hf.key.
func New(files Files) (*Source, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("hf.cert and hf.key belong together: give both or none")
	}
	s := &Source{files: files, last: tls.Config{MinVersion: tls.VersionTLS12}}
	if err := s.readAuthorities(); err != nil {
		return nil, err
	}
	return s, s.readPair()
}

// Config returns the settings for one handshake, from the files as they are now. If a
// certificate and its key do not fit, because only one has been replaced yet, or if a file cannot be read, Config
// uses the last pair, or authorities, that it could read.
func (s *Source) Config() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.readAuthorities()
	_ = s.readPair()
	return s.last.Clone()
}

func (s *Source) readAuthorities() error {
	if s.files.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(s.files.CA)
	if err != nil {
		return fmt.Errorf("hf.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("hf.ca: %s has no certificate in PEM form", s.files.CA)
	}
	s.last.RootCAs = pool
	return nil
}

func (s *Source) readPair() error {
	if s.files.Cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return fmt.Errorf("hf.cert and hf.key: %w", err)
	}
	s.last.Certificates = []tls.Certificate{pair}
	return nil
}
