//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

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
	cert, key := testserver.Certificate(t, t.TempDir(), "", 1)
	strange, _ := testserver.Certificate(t, t.TempDir(), "", 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testserver.Must(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	testserver.StartRedis(t, testserver.RedisOptions{Args: []string{
		"--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key,
	}})
	mine := "&hf.cert=" + cert + "&hf.key=" + key
	for _, c := range []struct{ host, params, says string }{
		{"127.0.0.1", "hf.ca=" + cert + mine, ""},
		{"127.0.0.1", "hf.ca=" + cert, "rediss://"}, // the server often closes the connection before it says why
		{"127.0.0.1", "hf.ca=" + strange + mine, "x509"},
		{"localhost", "hf.ca=" + cert + mine, "match localhost"},
		{"127.0.0.1", "hf.ca=" + cert + ".none", "no such file"},
		{"127.0.0.1", "hf.cert=" + cert, "hf.key"},
	} {
		err := works(t, fmt.Sprintf("rediss://%s:%s?%s", c.host, port, c.params))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("host %s, %s: error %v does not say %q", c.host, c.params, err, c.says)
		}
	}
}

// permissions are the commands that the page docs/stores/redis.md says a user needs.
const permissions = " +ping +info +select +eval +evalsha +subscribe +publish +pubsub|numsub +time +scan " +
	"+get +set +zadd +zrem +zrange +zrank +zscore +zcard +hset +hget +hdel +pexpire"

// TestUser: a user with few permissions, for all names or for those below a prefix, can do all that locks do there. A
// user without them is told.
func TestUser(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	for _, user := range []string{
		"app on >s3cret ~holdfast:* &holdfast:*" + permissions,
		"billing on >s3cret ~holdfast:{billing/* ~holdfast:store ~holdfast:life:* &holdfast:wake:*" + permissions,
		"weak on >s3cret ~holdfast:* &holdfast:* +@all -evalsha",
		"blind on >s3cret ~holdfast:* &holdfast:* +@all -info",
		"default off", // at the end, because it is the user who says all this
	} {
		if got := server.Ask(append([]string{"ACL", "SETUSER"}, strings.Fields(user)...)...); got != "OK" {
			t.Fatal(got)
		}
	}
	for user, parameters := range map[string]string{"app": "", "billing": "?hf.prefix=billing/", "blind": "?hf.forget=go"} {
		mayUse(t, "redis://"+user+":s3cret@"+server.Addr+parameters)
	}
	for raw, says := range map[string]string{
		"redis://billing:s3cret@" + server.Addr: "~holdfast:* &holdfast:*", // a name beyond the prefix
		"redis://weak:s3cret@" + server.Addr:    "lacks a permission",
		"redis://blind:s3cret@" + server.Addr:   "run this command", // INFO, which a script calls
		"redis://app:wrong@" + server.Addr:      "password is wrong",
		"redis://nobody:x@" + server.Addr:       "password is wrong",
		"redis://" + server.Addr:                "wants a password",
	} {
		if err := works(t, raw); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", raw, err, says)
		}
	}
}

// mayUse does all that locks do.
func mayUse(t *testing.T, raw string) {
	t.Helper()
	open := func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), raw)
		testserver.Must(t, err)
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	locks, second := open(), open()
	lease, err := locks.Mutex("name", nil).Acquire(t.Context())
	testserver.Must(t, err)
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
		testserver.Must(t, err)
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
