//go:build soak

package pgconn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// certificate makes one, and its key, in PEM form.
func certificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
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

// door is where PostgreSQL begins TLS. It tells the serial numbers of the certificates
// that it is shown, refuses the first one, and lets nobody in.
func door(t *testing.T) (address string, shown chan int64) {
	cert, key := certificate(t, 100)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	shown = make(chan int64, 100)
	config := &tls.Config{
		Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(c tls.ConnectionState) error {
			serial := c.PeerCertificates[0].SerialNumber.Int64()
			shown <- serial
			if serial == 1 {
				return errors.New("it has expired")
			}
			return nil
		},
	}
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				io.ReadFull(raw, make([]byte, 8)) // what asks for TLS
				raw.Write([]byte("S"))
				if tls.Server(raw, config).Handshake() != nil {
					io.Copy(io.Discard, raw) // so that the client reads why
				}
			}()
		}
	}()
	return listener.Addr().String(), shown
}

// TestCertificatesAreReplaced: pool and listener show the certificate that the files have
// when they connect.
func TestCertificatesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write := func(file string, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oldCert, oldKey := certificate(t, 1)
	newCert, newKey := certificate(t, 2)
	write(certFile, oldCert)
	write(keyFile, oldKey)
	through := func(address string) (*sql.DB, *settings) {
		u := &url.URL{Scheme: "postgres", User: url.User("u"), Host: address, Path: "/d"}
		u.RawQuery = url.Values{"sslmode": {"require"}, "sslcert": {certFile}, "sslkey": {keyFile}}.Encode()
		db, s, _, err := pool(u)
		if err != nil {
			t.Fatal(err)
		}
		return db, s
	}
	first, shownByPool := door(t)
	db, _ := through(first)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// A pool may try several times, also after it has returned.
	poolShows := func(want int64) {
		t.Helper()
		db.PingContext(ctx)
		for {
			select {
			case got := <-shownByPool:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the pool never shows certificate %d", want)
			}
		}
	}
	second, shownByListener := door(t)
	other, s := through(second)
	defer other.Close()
	h := &hub{config: forListening(s.last), last: &s.lastHost, subscribers: map[*subscriber]bool{{fresh: s.fresh}: true}}

	poolShows(1)
	write(certFile, newCert)
	poolShows(1) // because its key is not there yet
	write(keyFile, newKey)
	poolShows(2)
	h.connect(ctx)
	var got []int64
	for len(shownByListener) > 0 {
		got = append(got, <-shownByListener)
	}
	if !slices.Contains(got, 2) {
		t.Errorf("the listener shows the certificates %d, and not the new one, 2", got)
	}
}
