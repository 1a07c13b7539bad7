//go:build soak

package etcdlock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// certificate makes one for the loopback address that is its own authority, and
// returns the files of it and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	return certificateIn(t, t.TempDir())
}

// certificateIn writes them into that directory.
func certificateIn(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
}

// TestSecure: TLS with an authority of one's own, and users with passwords, one of
// whom may use one prefix only.
func TestSecure(t *testing.T) {
	cert, key := certificate(t)
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Cert: cert, Key: key})
	source, err := certs.New(certs.Files{CA: cert})
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + server.Addrs()}, TLS: source.Config(), DialTimeout: dialTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(root.UserAdd(t.Context(), "root", "secret"))
	must(root.UserGrantRole(t.Context(), "root", "root"))
	must(root.RoleAdd(t.Context(), "team"))
	must(root.RoleGrantPermission(t.Context(), "team", "team/", clientv3.GetPrefixRangeEnd("team/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(root.UserAdd(t.Context(), "worker", "p@ss:word"))
	must(root.UserGrantRole(t.Context(), "worker", "team"))
	must(root.AuthEnable(t.Context()))

	worker := "etcds://worker:p%40ss%3Aword@" + server.Addrs()
	for url, why := range map[string]string{
		worker + "/team": "without the authority's certificate",
		"etcds://worker:p%40ss@" + server.Addrs() + "/team?hf.ca=" + cert: "with a wrong password",
		"etcds://" + server.Addrs() + "/team?hf.ca=" + cert:               "without a user",
		worker + "/others?hf.ca=" + cert:                                  "in a prefix of others",
	} {
		locks, err := holdfast.Open(t.Context(), url)
		if err == nil {
			t.Errorf("P10: a store is opened %s", why)
			locks.Close()
		} else if text := err.Error(); strings.Contains(text, "p@ss") || strings.Contains(text, "p%40ss") {
			t.Errorf("the error shows the password: %v", err)
		}
	}

	a, b := openSecure(t, worker+"/team?hf.ca="+cert), openSecure(t, worker+"/team?hf.ca="+cert)
	passOnce(t, a, b)
	server.Members[0].Kill()
	server.Members[0].Start() // and knows nobody who has shown a password
	passOnce(t, b, a)
}

// TestClientCertificates: who has no certificate that etcd trusts is not let in, and
// who has one needs no password.
func TestClientCertificates(t *testing.T) {
	cert, key := certificate(t)
	strangers, strangersKey := certificate(t)
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Cert: cert, Key: key, ClientCA: cert})
	url := "etcds://" + server.Addrs() + "?hf.ca=" + cert
	for query, why := range map[string]string{
		"": "without a certificate",
		"&hf.cert=" + strangers + "&hf.key=" + strangersKey: "with a certificate that nobody trusts",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if locks, err := holdfast.Open(ctx, url+query); err == nil {
			t.Errorf("P10: a store is opened %s", why)
			locks.Close()
		}
		cancel()
	}
	if _, err := holdfast.Open(t.Context(), url+"&hf.cert="+cert+"&hf.key="+strangersKey); err == nil || !strings.Contains(err.Error(), "hf.cert") {
		t.Errorf("P10: a certificate with another's key: %v", err)
	}
	mine := url + "&hf.cert=" + cert + "&hf.key=" + key
	passOnce(t, openSecure(t, mine), openSecure(t, mine))
}

// TestCertificatesReplaced: the certificates of both sides, which are their own
// authorities here, are replaced, as is done before they expire, and the client goes
// on with the new ones when it connects again.
func TestCertificatesReplaced(t *testing.T) {
	theirs, ours := t.TempDir(), t.TempDir()
	cert, key := certificateIn(t, theirs)
	mine, mineKey := certificateIn(t, ours)
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Cert: cert, Key: key, ClientCA: mine})
	locks := openSecure(t, "etcds://"+server.Addrs()+"?hf.ca="+cert+"&hf.cert="+mine+"&hf.key="+mineKey)
	certificateIn(t, theirs)
	certificateIn(t, ours)
	server.Members[0].Kill()
	server.Members[0].Start()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		lease, err := locks.Mutex("orders", nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		cancel()
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls:") || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("the client goes on with certificates that have been replaced: %v", err)
		}
	}
}

// passOnce passes a name on from one to the other, who waits.
func passOnce(t *testing.T, a, b *holdfast.Client) {
	t.Helper()
	lease, err := a.Mutex("orders", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		next, err := b.Mutex("orders", nil).Acquire(t.Context())
		if err == nil {
			err = next.Release()
		}
		got <- err
	}()
	waiters(t, a, "orders", 1)
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Errorf("P7: a waiter with a password: %v", err)
	}
}

func openSecure(t *testing.T, url string) *holdfast.Client {
	t.Helper()
	locks, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}
