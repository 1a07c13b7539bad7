//go:build soak

package redislock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// authority issues certificates into files of one directory.
type authority struct {
	testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{TB: t, dir: t.TempDir()}
	a.issue("ca")
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key; the first certificate is the authority's
// own.
func (a *authority) issue(name string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", secret)
}

func (a *authority) write(name, kind string, der []byte) {
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
}

// works takes and releases a lock.
func works(t *testing.T, raw string) error {
	t.Helper()
	locks, err := holdfast.Open(t.Context(), raw)
	if err != nil {
		return err
	}
	lease, err := locks.Mutex("name", nil).Acquire(t.Context())
	if err == nil {
		err = lease.Release()
	}
	return errors.Join(err, locks.Close())
}

// TestTLS: the server wants a certificate of its clients, as is its default.
func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	ca.issue("server")
	ca.issue("client")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	testserver.StartRedis(t, testserver.RedisOptions{Args: []string{
		"--tls-port", port, "--tls-ca-cert-file", ca.file("ca.crt"),
		"--tls-cert-file", ca.file("server.crt"), "--tls-key-file", ca.file("server.key"),
	}})
	mine := "&hf.cert=" + ca.file("client.crt") + "&hf.key=" + ca.file("client.key")
	for _, c := range []struct{ host, params, says string }{
		{"127.0.0.1", "hf.ca=" + ca.file("ca.crt") + mine, ""},
		{"127.0.0.1", "hf.ca=" + ca.file("ca.crt"), "rediss://"}, // the server hangs up, and seldom gets to say why,
		{"127.0.0.1", "hf.ca=" + stranger.file("ca.crt") + mine, "unknown authority"},
		{"localhost", "hf.ca=" + ca.file("ca.crt") + mine, "match localhost"},
		{"127.0.0.1", "hf.ca=" + ca.file("none.crt"), "no such file"},
		{"127.0.0.1", "hf.ca=" + ca.file("client.key"), "no certificate"},
		{"127.0.0.1", "hf.cert=" + ca.file("client.crt"), "hf.key"},
	} {
		err := works(t, fmt.Sprintf("rediss://%s:%s?%s", c.host, port, c.params))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("host %s, %s: error %v does not say %q", c.host, c.params, err, c.says)
		}
	}
}

// TestCertificatesReplaced: the certificates of both sides and their authority are
// replaced, as is done before they expire, and the client goes on with the new ones
// when it connects again.
func TestCertificatesReplaced(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("server")
	ca.issue("client")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{
		"--tls-port", port, "--tls-ca-cert-file", ca.file("ca.crt"),
		"--tls-cert-file", ca.file("server.crt"), "--tls-key-file", ca.file("server.key"),
	}})
	locks, err := holdfast.Open(t.Context(), "rediss://127.0.0.1:"+port+"?hf.ca="+ca.file("ca.crt")+
		"&hf.cert="+ca.file("client.crt")+"&hf.key="+ca.file("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ca.cert = nil
	for _, name := range []string{"ca", "server", "client"} {
		ca.issue(name)
	}
	server.Kill()
	server.Start()
	for {
		lease, err := locks.Mutex("name", nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		if err == nil {
			break
		}
		if strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls:") {
			t.Fatalf("the client goes on with certificates that have been replaced: %v", err)
		}
	}
}

// permissions are what the documentation says that a user needs.
const permissions = "~holdfast:* &holdfast:* +ping +select +eval +evalsha +subscribe +publish +pubsub|numsub +time +scan " +
	"+get +set +zadd +zrem +zrange +zrank +zscore +zcard +hset +hget +hdel +pexpire"

// TestUser: a user with few permissions can do all that locks do, and one
// without is told.
func TestUser(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: strings.Fields("--user default off" +
		" --user app on >s3cret " + permissions + " --user weak on >s3cret ~holdfast:* &holdfast:* +@all -evalsha")})
	base := "@" + server.Addr
	locks, err := holdfast.Open(t.Context(), "redis://app:s3cret"+base+"/1")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	second, err := holdfast.Open(t.Context(), "redis+unix://app:s3cret@"+server.Socket+"?hf.db=1")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	lease, err := locks.Mutex("name", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() {
		next, err := second.Mutex("name", nil).Acquire(t.Context())
		if err == nil {
			err = errors.Join(next.Downgrade(t.Context()), next.Release())
		}
		passed <- err
	}()
	for { // until the other waits
		info, err := locks.Inspect(t.Context(), "name")
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Waiters) == 1 {
			break
		}
	}
	if err := errors.Join(lease.Renew(t.Context()), lease.Release(), <-passed); err != nil {
		t.Error(err)
	}
	if lease, err = locks.Mutex("broken", nil).Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	for info, err := range second.List(t.Context(), "") {
		if err != nil || info.Name != "broken" {
			t.Errorf("listed %+v, %v", info, err)
		}
	}
	if err := second.Break(t.Context(), "broken", lease.Token()); err != nil {
		t.Error(err)
	}
	<-lease.Done() // told at once: the default TTL is far longer than the test
	if err := lease.Release(); !errors.Is(err, holdfast.ErrBroken) {
		t.Errorf("a broken lease returned %v", err)
	}
	for raw, says := range map[string]string{
		"redis://weak:s3cret" + base: "lacks a permission",
		"redis://app:wrong" + base:   "password is wrong",
		"redis://nobody:x" + base:    "password is wrong",
		"redis://" + server.Addr:     "wants a password",
	} {
		if err := works(t, raw); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", raw, err, says)
		}
	}
}

// TestWrongServer: something else than Redis listens on the port.
func TestWrongServer(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	err := works(t, "redis://"+strings.TrimPrefix(web.URL, "http://"))
	if err == nil || !strings.Contains(err.Error(), "does not speak") {
		t.Errorf("from a web server: %v", err)
	}
}

// TestNoTLS: the server does not speak TLS, and waits for the end of what it takes
// for a command.
func TestNoTLS(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	if err := works(t, "rediss://"+server.Addr); err == nil || !strings.Contains(err.Error(), "the scheme is redis") {
		t.Errorf("error %v does not say that TLS is missing", err)
	}
}
