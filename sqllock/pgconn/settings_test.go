package pgconn

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestCertificatesAreReplaced: each connection shows the certificate that the files have when it is made, and the one
// before while the new one has no key yet.
func TestCertificatesAreReplaced(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	cert, key := testserver.Certificate(t, dir, "", 1)
	testserver.Certificate(t, next, "", 2)
	u := &url.URL{Scheme: "postgres", User: url.User("u"), Host: "127.0.0.1", Path: "/d"}
	u.RawQuery = url.Values{"sslmode": {"require"}, "sslcert": {cert}, "sslkey": {key}}.Encode()
	db, s, _, err := pool(u)
	must(t, err)
	defer db.Close()
	shows := func(want int64) {
		t.Helper()
		config, err := s.fresh(t.Context())
		must(t, err)
		shown, err := x509.ParseCertificate(config.TLSConfig.Certificates[0].Certificate[0])
		must(t, err)
		if got := shown.SerialNumber.Int64(); got != want {
			t.Errorf("a connection shows certificate %d, not %d", got, want)
		}
	}
	shows(1)
	must(t, os.Rename(filepath.Join(next, filepath.Base(cert)), cert))
	shows(1)
	must(t, os.Rename(filepath.Join(next, filepath.Base(key)), key))
	shows(2)
}
