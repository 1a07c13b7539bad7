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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// settings are how to connect to what a URL names. Pgx reads the files of certificates and
// passwords when it parses a URL, and they are replaced before they expire: so it parses
// the URL again for each connection.
type settings struct {
	url  *url.URL
	mu   sync.Mutex
	last *pgx.ConnConfig // what could be read last
}

// renew makes a connection's configuration what the files say now.
func (s *settings) renew(ctx context.Context, config *pgx.ConnConfig) error {
	now, err := s.fresh(ctx)
	if err == nil {
		*config = *now
	}
	return err
}

// fresh returns how to connect now. While the files cannot be read, or do not belong
// together yet, it returns what they said last.
func (s *settings) fresh(context.Context) (*pgx.ConnConfig, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, _, err := parse(s.url); err == nil {
		s.last = now
	}
	return s.last.Copy(), nil
}

// refusesUs reports whether the server was reached, and refused the password or the
// certificate that was shown to it, or showed one that is not trusted.
func refusesUs(err error) bool {
	if said := (*pgconn.PgError)(nil); errors.As(err, &said) {
		return strings.HasPrefix(said.Code, "28")
	}
	if failed := (*net.OpError)(nil); errors.As(err, &failed) {
		return failed.Op == "remote error" // as TLS calls it
	}
	verification := (*tls.CertificateVerificationError)(nil)
	return errors.As(err, &verification) || errors.As(err, &x509.UnknownAuthorityError{}) || errors.As(err, &x509.CertificateInvalidError{})
}
