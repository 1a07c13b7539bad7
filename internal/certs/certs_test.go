package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
)

// pair makes a certificate and its key.
func pair(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReplaced: what the files say holds from the next handshake on; what they say
// while they are being replaced does not.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	files := Files{filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
	oldCert, oldKey := pair(t, 1)
	newCert, newKey := pair(t, 2)
	write(t, files.CA, oldCert)
	write(t, files.Cert, oldCert)
	write(t, files.Key, oldKey)
	s, err := New(files)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(when string, cert, ca []byte) {
		t.Helper()
		config := s.Config()
		block, _ := pem.Decode(cert)
		if !bytes.Equal(config.Certificates[0].Certificate[0], block.Bytes) {
			t.Errorf("%s: another certificate is shown", when)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		if !config.RootCAs.Equal(pool) {
			t.Errorf("%s: other authorities are trusted", when)
		}
	}
	shows("at first", oldCert, oldCert)
	write(t, files.Cert, newCert)
	shows("with the key not replaced yet", oldCert, oldCert)
	write(t, files.Key, newKey)
	shows("replaced", newCert, oldCert)
	write(t, files.CA, newCert)
	shows("with the authority replaced", newCert, newCert)
	if err := os.Remove(files.CA); err != nil {
		t.Fatal(err)
	}
	shows("with a file that is missing", newCert, newCert)
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	cert, key := pair(t, 1)
	_, stranger := pair(t, 2)
	write(t, filepath.Join(dir, "cert"), cert)
	write(t, filepath.Join(dir, "key"), key)
	write(t, filepath.Join(dir, "stranger"), stranger)
	for what, files := range map[string]Files{
		"a key is missing":       {Cert: filepath.Join(dir, "cert")},
		"a file is missing":      {CA: filepath.Join(dir, "none")},
		"no certificate":         {CA: filepath.Join(dir, "key")},
		"the key of another one": {Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "stranger")},
	} {
		if _, err := New(files); err == nil {
			t.Errorf("P10: %s, and there is no error", what)
		}
	}
}
