//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// certificates makes an authority, and a certificate of it for each name; the files are NAME.pem and NAME.key.
func (w *world) certificates(names ...string) {
	w.t.Helper()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	signer := w.key("ca")
	w.pem("ca.pem", "CERTIFICATE", w.sign(authority, authority, &signer.PublicKey, signer))
	for i, name := range names {
		key := w.key(name)
		w.pem(name+".pem", "CERTIFICATE", w.sign(&x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, authority, &key.PublicKey, signer))
	}
}

func (w *world) key(name string) *ecdsa.PrivateKey {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.pem(name+".key", "PRIVATE KEY", der)
	return key
}

func (w *world) sign(c, by *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	w.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, by, public, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return der
}

func (w *world) pem(name, kind string, der []byte) {
	w.t.Helper()
	w.write(name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// token makes a token, and returns it and its line for the file of principals.
func (w *world) token() (token, line string) {
	w.t.Helper()
	token, line, _ = strings.Cut(strings.TrimSpace(w.run(0, "cell", "token", "--valid", "1h").out.String()), "\n")
	return token, line
}
