package etcdlock

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
)

// asked is a way to etcd that tells when a transaction begins.
type asked struct {
	clientv3.KV
	begun chan struct{}
}

func (a *asked) Txn(ctx context.Context) clientv3.Txn {
	select {
	case a.begun <- struct{}{}:
	default:
	}
	return a.KV.Txn(ctx)
}

// TestRenewalIsOneRoundTrip: a renewal asks for its keys before it knows that its lease is
// kept alive.
func TestRenewalIsOneRoundTrip(t *testing.T) {
	server := shared(t)
	proxy := chaos.StartProxy(t, server.Addrs())
	c := dial(t, proxy.Addr, nil)
	defer c.Close()
	req := plainRequest("n", "owner")
	req.TTL = 20 * time.Second
	g := take(t, c, req)
	kv := &asked{c.kv, make(chan struct{}, 1)}
	c.kv = kv
	c.mu.Lock()
	for _, s := range c.sessions {
		s.since = s.since.Add(-req.TTL / 4) // the lease is to be kept alive
	}
	c.mu.Unlock()
	proxy.HoldReplies()
	renewed := make(chan driver.Renewal, 1)
	go func() { renewed <- c.Renew(t.Context(), []driver.Grant{g})[0] }()
	select {
	case <-kv.begun:
	case r := <-renewed:
		t.Errorf("without a reply the renewal asked for no key: %+v", r)
		renewed <- r
	}
	proxy.Heal()
	if r := <-renewed; r.Err != nil {
		t.Error(r.Err)
	}
}
