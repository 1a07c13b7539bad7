package etcdlock

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// shared returns the etcd that the tests of the gate share, empty.
func shared(t testing.TB) *testserver.Etcd {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.Etcd {
		return testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	}, func(t testing.TB, server *testserver.Etcd) {
		c := dialClient(t, server.Addrs())
		defer c.Close()
		if _, err := c.Delete(t.Context(), "", clientv3.WithFromKey()); err != nil {
			t.Fatal(err)
		}
		all, err := c.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all.Leases {
			c.Revoke(t.Context(), l.ID) // fails if it has expired
		}
	})
}
