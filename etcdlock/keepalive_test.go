package etcdlock

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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

// TestKeptAliveOnce: the answer to a request whose asker has gone is not taken for that of a later request
// for the same lease, which would be trusted for too long (P1).
func TestKeptAliveOnce(t *testing.T) {
	st := &keepAlives{cancel: func() {}, pending: make(chan struct{}, 1), made: time.Now()}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if kept := st.ask(gone, 1, time.Hour); !errors.Is(kept.err, context.Canceled) {
		t.Errorf("an asker that has gone got %+v", kept)
	}
	got := make(chan keptAlive)
	go func() { got <- st.ask(t.Context(), 1, time.Hour) }()
	for asked := 0; asked < 2; {
		st.mu.Lock()
		asked = len(st.asked)
		st.mu.Unlock()
	}
	for _, ttl := range []int64{7, 8} {
		if err := st.heardOf(&etcdserverpb.LeaseKeepAliveResponse{ID: 1, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := <-got; kept.err != nil || kept.ttl != 8 {
		t.Errorf("the second request got %+v, not its own answer", kept)
	}
	if st.heardOf(&etcdserverpb.LeaseKeepAliveResponse{ID: 1, TTL: 9}) == nil {
		t.Error("an answer that nobody asked for was taken")
	}
}
