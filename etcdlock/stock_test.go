package etcdlock

import (
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// TestStockShown: an operator sees a stock lock's hold, and can break it.
func TestStockShown(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), &Options{Layout: Stock})
	defer c.Close()
	session, err := concurrency.NewSession(c.etcd)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "a/b")
	if err := mutex.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Put(t.Context(), "a/other/data", "x"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for info, err := range c.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
		if len(info.Holders) != 1 || info.Holders[0].Expires <= 0 {
			t.Fatalf("a stock lock is shown as %+v", info)
		}
		if err := c.Break(t.Context(), info.Name, info.Holders[0].Token); err != nil {
			t.Errorf("P4: breaking a stock lock: %v", err)
		}
	}
	if len(names) != 1 || names[0] != "a/b" {
		t.Errorf("List shows %q", names)
	}
	if info, err := c.Inspect(t.Context(), "a/b"); err != nil || !info.Idle() {
		t.Errorf("P4: after the break: %+v, %v", info, err)
	}
}
