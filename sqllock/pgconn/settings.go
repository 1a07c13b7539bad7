package pgconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// settings make the configuration for a URL. pgx reads the files of certificates and passwords when it parses a
// URL, and they are replaced before they expire. So settings parse the URL again for each connection.
type settings struct {
	url  *url.URL
	mu   sync.Mutex
	last *pgx.ConnConfig // the last that could be parsed

	lastHost atomic.Int32 // of several, the one that was used last
}

// fresh returns the present configuration, or the last one while the files cannot be read or do not belong
// together.
func (s *settings) fresh(context.Context) (*pgx.ConnConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _, err := parse(s.url); err == nil {
		s.last = now
	}
	return s.last.Copy(), nil
}

// refusesUs reports whether the server was reached and refused our password or certificate, or showed a certificate
// that is not trusted.
func refusesUs(err error) bool {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return strings.HasPrefix(e.Code, "28")
	}
	if failed := (*net.OpError)(nil); errors.As(err, &failed) {
		return failed.Op == "remote error" // as TLS calls it
	}
	verification := (*tls.CertificateVerificationError)(nil)
	return errors.As(err, &verification) || errors.As(err, &x509.UnknownAuthorityError{}) || errors.As(err, &x509.CertificateInvalidError{})
}
