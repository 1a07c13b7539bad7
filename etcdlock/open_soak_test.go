//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestSecure: TLS with an authority of one's own, and users with passwords, one of
// whom may use one prefix only.
func TestSecure(t *testing.T) {
	cert, key := testserver.Certificate(t, t.TempDir(), "", 1)
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Cert: cert, Key: key})
	source, err := certs.New(certs.Files{CA: cert})
	must(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + server.Addrs()}, TLS: source.Config(), DialTimeout: dialTimeout})
	must(t, err)
	defer root.Close()
	done := func(_ any, err error) { t.Helper(); must(t, err) }
	done(root.UserAdd(t.Context(), "root", "secret"))
	done(root.UserGrantRole(t.Context(), "root", "root"))
	done(root.RoleAdd(t.Context(), "team"))
	done(root.RoleGrantPermission(t.Context(), "team", "team/", clientv3.GetPrefixRangeEnd("team/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	done(root.UserAdd(t.Context(), "worker", "p@ss:word"))
	done(root.UserGrantRole(t.Context(), "worker", "team"))
	done(root.AuthEnable(t.Context()))

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

	a, b := openLocks(t, worker+"/team?hf.ca="+cert), openLocks(t, worker+"/team?hf.ca="+cert)
	passOnce(t, a, b)
	server.Members[0].Kill()
	server.Members[0].Start() // and knows nobody who has shown a password
	passOnce(t, b, a)
}

// TestClientCertificates: a client without a certificate that etcd trusts is not let in, and one with such a
// certificate needs no password. The certificates of both sides are replaced, as is done before they expire, and
// the client goes on with the new ones when it connects again.
func TestClientCertificates(t *testing.T) {
	theirs, ours := t.TempDir(), t.TempDir()
	cert, key := testserver.Certificate(t, theirs, "", 1)
	mine, mineKey := testserver.Certificate(t, ours, "", 1)
	strangers, strangersKey := testserver.Certificate(t, t.TempDir(), "", 1)
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Cert: cert, Key: key, ClientCA: mine})
	url := "etcds://" + server.Addrs() + "?hf.ca=" + cert
	for query, why := range map[string]string{
		"": "without a certificate",
		"&hf.cert=" + strangers + "&hf.key=" + strangersKey: "with a certificate that nobody trusts",
		"&hf.cert=" + mine + "&hf.key=" + strangersKey:      "with another's key",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if locks, err := holdfast.Open(ctx, url+query); err == nil {
			t.Errorf("P10: a store is opened %s", why)
			locks.Close()
		}
		cancel()
	}
	url += "&hf.cert=" + mine + "&hf.key=" + mineKey
	locks := openLocks(t, url)
	passOnce(t, locks, openLocks(t, url))
	for _, dir := range []string{theirs, ours} {
		testserver.Certificate(t, dir, "", 1)
	}
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
	must(t, err)
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

// TestOpenEnds: Open returns when its context ends, with a password and without,
// although nobody answers.
func TestOpenEnds(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer mute.Close()
	for _, user := range []string{"", "user:password@"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan error, 1)
		go func() {
			_, err := holdfast.Open(ctx, "etcd://"+user+mute.Addr().String())
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("P11: opening a store that does not answer: %v", err)
			}
		case <-time.After(dialTimeout - time.Second):
			t.Error("P11: Open does not hear of the end of its context")
		}
		cancel()
	}
}

// TestNobodyThere: a store of which no member can be reached is told at once, with the
// address and what is wrong.
func TestNobodyThere(t *testing.T) {
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	one, two, three := closed(), closed(), closed()
	for url, want := range map[string][]string{
		"etcd://" + one: {one, "connection refused"},
		"etcd://" + strings.Join([]string{one, two, three}, ","): {"127.0.0.1:", "connection refused"},
		"etcd://user:password@" + one:                            {one, "connection refused"},
		"etcds://" + one:                                         {one, "connection refused"},
		"etcd://nobody.invalid":                                  {"nobody.invalid", "lookup"},
	} {
		began := time.Now()
		locks, err := holdfast.Open(t.Context(), url)
		if err == nil {
			locks.Close()
			t.Errorf("%s is opened", url)
			continue
		}
		if took := time.Since(began); took > dialTimeout/2 {
			t.Errorf("%s: told after %v", url, took)
		}
		if status.Code(err) != codes.Unavailable || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", url, err)
		}
		for _, part := range append(want, "rror while dialing") { // by which "holdfast run" goes
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not say %q: %v", url, part, err)
			}
		}
	}
}
