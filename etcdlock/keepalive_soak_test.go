//go:build soak

package etcdlock

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// passwordsChecked returns how often a server was asked for a token.
func passwordsChecked(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "grpc_server_started_total") && strings.Contains(line, `"Authenticate"`) {
			return line
		}
	}
	t.Fatal("the server counts no passwords")
	return ""
}

// TestKeepAlivesCheckNoPassword: signs of life of a client with a password do not have it checked again.
func TestKeepAlivesCheckNoPassword(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	root := dialClient(t, server.Addrs())
	defer root.Close()
	_, err1 := root.UserAdd(t.Context(), "root", "secret")
	_, err2 := root.UserGrantRole(t.Context(), "root", "root")
	_, err3 := root.AuthEnable(t.Context())
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + server.Addrs()}, DialTimeout: dialTimeout, Username: "root", Password: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(t.Context(), etcd, true, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := c.Try(t.Context(), driver.Request{Name: "x", Owner: "owner", TTL: time.Hour, Tokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := c.record("x", "owner").session.Load()
	alive := func() {
		t.Helper()
		if _, err := s.refresh(t.Context(), c.clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	alive()
	for before := ""; before != passwordsChecked(t, server.Addrs()); { // until the stream for breaks has been opened too
		before = passwordsChecked(t, server.Addrs())
		time.Sleep(time.Second / 10)
	}
	before := passwordsChecked(t, server.Addrs())
	for range 20 {
		alive()
	}
	if after := passwordsChecked(t, server.Addrs()); after != before {
		t.Errorf("20 signs of life: %s before, %s after", before, after)
	}
}
