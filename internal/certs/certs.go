// Package certs makes TLS settings from certificate files, which it reads again for each
// handshake, or when it is told to. So a program that runs for longer than its certificates are valid can connect
// after they were replaced.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Files names files in PEM form; those that are "" are not used.
type Files struct {
	CA        string // authorities to trust; "": the system's
	Cert, Key string // the program's certificate and its private key: both or none
}

// Source returns the TLS settings for each handshake. It is safe for concurrent use.
type Source struct {
	files Files
	mu    sync.Mutex
	text  []byte      // of the files, as they were taken in last
	last  *tls.Config // made of it
}

// New reads the files for the first time.
func New(files Files) (*Source, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("hf.cert and hf.key belong together: give both or none")
	}
	s := &Source{files: files, last: &tls.Config{MinVersion: tls.VersionTLS12}}
	_, err := s.Reread()
	return s, err
}

// Config returns the settings for one handshake, from the files as they are now. If a
// certificate and its key do not fit, because only one has been replaced yet, or if a file cannot be read, Config
// uses what it could read last.
func (s *Source) Config() *tls.Config {
	_, _ = s.Reread()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Clone()
}

// Reread reads the files again, and reports whether what they say has changed.
func (s *Source) Reread() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all [3][]byte
	for i, name := range []string{s.files.CA, s.files.Cert, s.files.Key} {
		if name == "" {
			continue
		}
		if all[i], err = os.ReadFile(name); err != nil {
			return false, err
		}
	}
	text, next := bytes.Join(all[:], []byte{0}), s.last.Clone()
	if bytes.Equal(text, s.text) {
		return false, nil
	}
	if s.files.CA != "" {
		if next.RootCAs = x509.NewCertPool(); !next.RootCAs.AppendCertsFromPEM(all[0]) {
			return false, fmt.Errorf("%s has no certificate in PEM form", s.files.CA)
		}
	}
	if s.files.Cert != "" {
		pair, err := tls.X509KeyPair(all[1], all[2])
		if err != nil {
			return false, fmt.Errorf("%s and %s: %w", s.files.Cert, s.files.Key, err)
		}
		next.Certificates = []tls.Certificate{pair}
	}
	s.text, s.last = text, next
	return true, nil
}
