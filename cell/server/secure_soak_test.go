//go:build soak

package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	put(t, a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes a certificate of a name, and of a URI if it is not "", for this host's servers and for clients.
func (a *authority) sign(t *testing.T, name, uri string, valid time.Duration) (cert, key []byte) {
	t.Helper()
	secret := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &secret.PublicKey, a.key)
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

// files writes a certificate that the authority signs, for a member.
func (a *authority) files(t *testing.T, name string) TLS {
	t.Helper()
	dir := t.TempDir()
	f := TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, key := a.sign(t, name, "", time.Hour)
	put(t, f.Cert, cert)
	put(t, f.Key, key)
	return f
}

// client returns a client that trusts the authority, and shows a certificate unless it is nil.
func (a *authority) client(t *testing.T, cert, key []byte) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// promptly is how soon a change of the principals must be felt.
const promptly = 5 * time.Second

// soon fails the test unless something is so soon enough.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > promptly {
			t.Fatalf("after %v: %s", promptly, what)
		}
	}
}

// TestTokens: a caller without a token that is known and valid is let in nowhere, and one that has two is let in
// by both. What the file says is felt soon, also by a call that is parked.
func TestTokens(t *testing.T) {
	p := newPeople(t)
	token := p.add(t, "billing", grant{"", toWrite})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	url := "http://" + m.Addr()
	as := func(token string) api { return dialAs(http.DefaultClient, url, token) }

	for what, wrong := range map[string]string{
		"no token": "", "another one": rand.Text(), "a part of it": token[:len(token)-1], "its hash": p.all["billing"].Tokens[0].SHA256,
	} {
		if err := as(wrong).status(t); reasonOf(err) != cellv1.Reason_REASON_UNKNOWN_CALLER || connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", what, err)
		}
	}
	for path, want := range map[string]int{"/metrics": 401, "/healthz": 200, "/readyz": 200, "/nothing": 401} {
		r, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s without a token: %s", path, r.Status)
		}
	}
	if err := as(token).status(t); err != nil {
		t.Fatal(err)
	}

	// Another token beside the first, and then alone.
	second, entry := newToken(time.Now().Add(time.Hour))
	old := p.all["billing"].Tokens[0]
	p.all["billing"].Tokens = []bearer{old, entry}
	p.write(t)
	soon(t, "a second token is not known", func() bool { return as(second).status(t) == nil })
	if err := as(token).status(t); err != nil {
		t.Errorf("the first of two tokens: %v", err)
	}
	session := as(token).open(t, 3*time.Minute)
	ended := make(chan error, 1)
	go func() {
		ended <- as(token).parks(t, session)
	}()
	keep := func(token string) error {
		_, err := as(token).KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: session, Now: true})
		return err
	}
	soon(t, "the session is not kept alive", func() bool { return keep(token) == nil })
	p.all["billing"].Tokens = []bearer{entry}
	p.write(t)
	select {
	case err := <-ended:
		if reasonOf(err) != cellv1.Reason_REASON_UNKNOWN_CALLER {
			t.Errorf("a parked call whose token was revoked: %v", err)
		}
	case <-time.After(promptly):
		t.Errorf("a parked call has not ended %v after its token was revoked", promptly)
	}
	if err := keep(token); reasonOf(err) != cellv1.Reason_REASON_UNKNOWN_CALLER {
		t.Errorf("a revoked token renews: %v", err)
	}
	if err := keep(second); err != nil {
		t.Errorf("the session is its principal's by the other token too: %v", err)
	}

	// A file that is wrong changes nothing.
	put(t, p.file, []byte(`{"principals": [`))
	time.Sleep(2 * recheckEvery)
	if err := keep(second); err != nil {
		t.Errorf("a file that cannot be read: %v", err)
	}
	// Without the principal the session is nobody's.
	delete(p.all, "billing")
	p.write(t)
	soon(t, "a principal that was removed renews", func() bool { return reasonOf(keep(second)) == cellv1.Reason_REASON_UNKNOWN_CALLER })
}

// TestTokenExpires: an expired token is none, for calls that are parked too.
func TestTokenExpires(t *testing.T) {
	p := newPeople(t)
	token := p.add(t, "a", grant{"", toWrite})
	p.all["a"].Tokens[0].Expires = time.Now().Add(3 * time.Second)
	p.write(t)
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	a := dialAs(http.DefaultClient, "http://"+m.Addr(), token)
	session := a.open(t, 3*time.Minute)
	if _, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: session, Now: true}); err != nil {
		t.Fatalf("a token that has not expired: %v", err)
	}
	if err := a.parks(t, session); reasonOf(err) != cellv1.Reason_REASON_UNKNOWN_CALLER {
		t.Errorf("a parked call whose token has expired: %v", err)
	}
	if err := a.status(t); reasonOf(err) != cellv1.Reason_REASON_UNKNOWN_CALLER {
		t.Errorf("a token that has expired: %v", err)
	}
}

// TestRightsChange: a call that waits for a lock does not get it when its principal may not have it any more.
func TestRightsChange(t *testing.T) {
	p := newPeople(t)
	one, two := p.add(t, "one", grant{"", toWrite}), p.add(t, "two", grant{"", toWrite})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	a, b := dialAs(http.DefaultClient, "http://"+m.Addr(), one), dialAs(http.DefaultClient, "http://"+m.Addr(), two)
	holder, waiter := a.open(t, 30*time.Second), b.open(t, 30*time.Second)
	a.take(t, holder, "job", nil)
	answered := make(chan error, 1)
	go func() {
		_, err := b.acquire(t, waiter, "job", wait(time.Minute))
		answered <- err
	}()
	soon(t, "nobody waits", func() bool { return len(a.show(t, "job").Waiters) == 1 })
	p.all["two"].Rights = []grant{{"elsewhere", toWrite}}
	p.write(t)
	select {
	case err := <-answered:
		if reasonOf(err) != cellv1.Reason_REASON_UNCERTAIN {
			t.Errorf("a call whose principal has other rights now: %v", err)
		}
	case <-time.After(promptly):
		t.Fatalf("a call has not ended %v after its principal has lost the right to the name", promptly)
	}
	if _, err := b.acquire(t, waiter, "job", wait(time.Minute)); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
		t.Errorf("the call made again: %v", err)
	}
}

// TestClientCertificates: the certificate of a connection says who calls: its URI, or the common name. One of
// another authority does not, and neither does none.
func TestClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	p := newPeople(t)
	token := p.add(t, "by-token", grant{"", toRead})
	p.add(t, "billing", grant{"billing", toWrite})
	p.add(t, "spiffe://example/reports", grant{"reports", toWrite})
	own := ca.files(t, "member")
	own.CA = ca.file
	for _, c := range []struct {
		what      string
		file      string
		ca        *authority
		name, uri string
		token     string
		may       string // a name that it may lock; "": it is not let in
		mayNot    string
	}{
		{"common name", p.file, ca, "billing", "", "", "billing/a", "reports/a"},
		{"URI", p.file, ca, "billing", "spiffe://example/reports", "", "reports/a", "billing/a"},
		{"no principal", p.file, ca, "nobody", "", "", "", ""},
		{"no certificate, but a token", p.file, nil, "", "", token, "", "billing/a"},
		{"no certificate, no token", p.file, nil, "", "", "", "", ""},
		{"a wrong token", p.file, ca, "billing", "", "x", "", ""},
		{"another authority", p.file, stranger, "billing", "", "", "", ""},
		{"no file", "", ca, "anybody", "", "", "billing/a", ""},
		{"no file and no certificate", "", nil, "", "", "", "", ""},
		{"no file and no name", "", ca, "", "", "", "", ""},
		{"no file and a token only", "", nil, "", "", token, "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := startWith(t, func(config *Config) { config.TLS, config.Principals = own, c.file })
			h := ca.client(t, nil, nil)
			if c.ca != nil {
				cert, key := c.ca.sign(t, c.name, c.uri, time.Hour)
				h = ca.client(t, cert, key)
			}
			a := dialAs(h, "https://"+m.Addr(), c.token)
			in := c.may != "" || c.mayNot != ""
			opened, err := a.opened(t)
			if in != (err == nil) {
				t.Fatalf("let in: %v", err)
			}
			if !in {
				return
			}
			if c.may != "" {
				a.take(t, opened.Session, c.may, nil)
			}
			if c.mayNot != "" {
				if _, err := a.acquire(t, opened.Session, c.mayNot, nil); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
					t.Errorf("%s: %v", c.mayNot, err)
				}
			}
		})
	}
}

// TestCertificatesChange: a member shows new connections the certificate that its files have, and asks of clients
// what the authority says that its files have.
func TestCertificatesChange(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	own := ca.files(t, "first")
	own.CA = filepath.Join(t.TempDir(), "clients.pem")
	put(t, own.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
	m := startWith(t, func(c *Config) { c.TLS = own })
	cert, key := ca.sign(t, "client", "", time.Hour)
	otherCert, otherKey := other.sign(t, "client", "", time.Hour)
	shows := func() string {
		config := ca.client(t, cert, key).Transport.(*http.Transport).TLSClientConfig
		conn, err := tls.Dial("tcp", m.Addr(), config)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	before := dialAs(ca.client(t, cert, key), "https://"+m.Addr(), "")
	if err := before.status(t); err != nil || shows() != "first" {
		t.Fatalf("at first: %v, %s", err, shows())
	}
	if err := dialAs(ca.client(t, otherCert, otherKey), "https://"+m.Addr(), "").status(t); err == nil {
		t.Error("a client of another authority is let in")
	}
	nextCert, nextKey := ca.sign(t, "second", "", time.Hour)
	put(t, own.Cert, nextCert)
	time.Sleep(2 * recheckEvery)
	if got := shows(); got != "first" {
		t.Errorf("while the key is not there yet: %s", got)
	}
	put(t, own.Key, nextKey)
	soon(t, "the new certificate is not shown", func() bool { return shows() == "second" })
	if err := before.status(t); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	put(t, own.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.cert.Raw}))
	soon(t, "the new authority is not believed", func() bool {
		return dialAs(ca.client(t, otherCert, otherKey), "https://"+m.Addr(), "").status(t) == nil
	})
	if err := dialAs(ca.client(t, cert, key), "https://"+m.Addr(), "").status(t); err == nil {
		t.Error("a client of the authority before is let in")
	}
}

// TestLoopbackRule: a member that knows nobody, or has no certificate, serves this host alone; and not even a
// browser there that was given another name for it.
func TestLoopbackRule(t *testing.T) {
	ca, p := newAuthority(t), newPeople(t)
	p.add(t, "a")
	own := ca.files(t, "member")
	withCA := own
	withCA.CA = ca.file
	for _, c := range []struct {
		what string
		Config
		says string // in the error; "": it is right
	}{
		{"loopback", Config{Listen: "127.0.0.1:0"}, ""},
		{"localhost", Config{Listen: "localhost:0"}, ""},
		{"nothing", Config{Listen: "0.0.0.0:0"}, "certificate"},
		{"all addresses", Config{Listen: ":0"}, "certificate"},
		{"a name", Config{Listen: "cell.example.org:7433"}, "certificate"},
		{"principals without TLS", Config{Listen: "0.0.0.0:0", Principals: p.file}, "certificate"},
		{"TLS without principals", Config{Listen: "0.0.0.0:0", TLS: own}, "principals"},
		{"TLS and principals", Config{Listen: "0.0.0.0:0", TLS: own, Principals: p.file}, ""},
		{"TLS and an authority", Config{Listen: "0.0.0.0:0", TLS: withCA}, ""},
		{"insecure", Config{Listen: "0.0.0.0:0", Insecure: true}, ""},
		{"an authority without a certificate", Config{Listen: "127.0.0.1:0", TLS: TLS{CA: ca.file}}, "belong together"},
	} {
		c.Config.Data = t.TempDir()
		config := c.Config.withDefaults()
		switch err := config.check(); {
		case (err == nil) != (c.says == ""), err != nil && !strings.Contains(err.Error(), c.says):
			t.Errorf("P10: %s: %v", c.what, err)
		case err != nil && c.says != "belong together" && !strings.Contains(err.Error(), "--insecure"):
			t.Errorf("P10: %s: the error does not say what to do: %v", c.what, err)
		}
	}
	m := start(t)
	for host, want := range map[string]int{"": 200, "localhost:1": 200, "[::1]:1": 200, "evil.example": 421, "evil.example:7433": 421, "127.0.0.1.evil.example": 421} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+m.Addr()+"/holdfast.cell.v1.Cell/Status", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("Host %q: %s", host, resp.Status)
		}
	}
}

// TestPeersNeedCertificates: members with certificates of their authority are a cell, and their ports for members
// speak to nobody else.
func TestPeersNeedCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	configs := trio(t)
	peers := configs[0].Members // of all three
	for name, u := range peers {
		peers[name] = strings.Replace(u, "http:", "https:", 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	started := make(chan error)
	var some *Member
	for i, c := range configs {
		c.PeerTLS = ca.files(t, c.Name)
		c.PeerTLS.CA = ca.file
		go func() {
			m, err := startAs(ctx, t, c)
			if i == 0 {
				some = m
			}
			started <- err
		}()
	}
	for range configs {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	serves(t, some)
	ask := func(peer string, h *http.Client) error {
		h.Transport.(*http.Transport).ForceAttemptHTTP2 = false // etcd's peers speak HTTP/1.1
		r, err := h.Get(peer + "/version")
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	cert, key := ca.sign(t, "another member", "", time.Hour)
	strange, strangeKey := stranger.sign(t, "another member", "", time.Hour)
	expired, expiredKey := ca.sign(t, "another member", "", -time.Minute)
	for _, peer := range peers {
		if err := ask(peer, ca.client(t, cert, key)); err != nil {
			t.Errorf("a member: %v", err)
		}
		for what, h := range map[string]*http.Client{
			"no certificate": ca.client(t, nil, nil), "one of another authority": ca.client(t, strange, strangeKey), "an old one": ca.client(t, expired, expiredKey),
		} {
			if err := ask(peer, h); err == nil {
				t.Errorf("somebody with %s is answered", what)
			}
		}
	}
}
