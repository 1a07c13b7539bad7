//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestLateRecord: a renewal that puts a token on record arrives when the hold has been
// downgraded. It must not make a writer of the reader again (P1).
func TestLateRecord(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	req := request("late")
	req.Tokens = 10
	g := take(t, c, req)
	passed := g
	passed.Token, passed.HandedOver = g.Token+3, true
	late := &heldUp{KVClient: c.direct, kind: func(*etcdserverpb.TxnRequest) bool { return true }}
	c.direct = late
	r := c.record(g.Name, g.Owner)
	if _, err := c.recordHandOver(t.Context(), r, &passed); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing was held up: %v", err)
	}
	c.direct = late.KVClient
	if _, err := c.Downgrade(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if late.arrive(t).Succeeded {
		t.Error("P1: a change that is late took effect")
	}
	if info, err := c.Inspect(t.Context(), g.Name); err != nil || len(info.Holders) != 1 || info.Holders[0].Mode != driver.Shared {
		t.Errorf("P1: the reader is shown as %+v, %v", info, err)
	}
}

// TestOtherVersion: a client of the first version of the format, whose tokens are lower,
// has a key of the name. Nobody of this version gets beside it, and all are told why.
func TestOtherVersion(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	locks := openLocks(t, "etcd://"+server.Addrs())
	oldAs := func(name, mode string) (key string) {
		t.Helper()
		lease, err := c.etcd.Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		key = "holdfast/lock/" + name + "/ABCDEFGHIJKLMNOP.0"
		value := `{"holdfast":1,"owner":"an old one",` + mode + `,"note":"old","client":"ABCDEFGHIJKLMNOP","asked_ms":1700000000000}`
		if _, err := c.etcd.Put(t.Context(), key, value, clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		return key
	}
	old := func(name string) (key string) {
		t.Helper()
		return oldAs(name, `"mode":"exclusive"`)
	}
	refuses := func(why string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrMismatch) || !strings.Contains(fmt.Sprint(err), "version 1 of the format") {
			t.Errorf("P10: %s: %v", why, err)
		}
	}
	t.Run("holds what this one would be admitted beside", func(t *testing.T) {
		oldAs("reads", `"mode":"shared"`)
		readers := request("reads")
		readers.Mode = driver.Shared
		oldAs("slots", `"mode":"slot","slots":3,"permits":1`)
		slots := request("slots")
		slots.Mode, slots.Slots, slots.Permits = driver.Slot, 3, 1
		for _, req := range []driver.Request{readers, slots} {
			_, err := c.Try(t.Context(), req)
			refuses("a try", err)
			_, err = c.Enqueue(t.Context(), req)
			refuses("a place", err)
		}
	})
	t.Run("holds", func(t *testing.T) {
		key := old("holds")
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
			req := request("holds")
			req.Mode = mode
			_, err := c.Try(t.Context(), req)
			refuses("a try", err)
			_, err = c.Enqueue(t.Context(), req)
			refuses("a place", err)
		}
		_, err := locks.Mutex("holds", nil).Acquire(t.Context())
		refuses("an acquire", err)
		if n := keys(t, c, "holds"); n != 1 {
			t.Errorf("P6: %d keys are there", n)
		}
		info, err := c.Inspect(t.Context(), "holds")
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != "an old one" {
			t.Fatalf("it is shown as %+v, %v", info, err)
		}
		if err := c.Break(t.Context(), "holds", info.Holders[0].Token); err != nil {
			t.Errorf("P4: it cannot be broken: %v", err)
		}
		// Where it looks for what operators broke.
		created := c.layout.Created(info.Holders[0].Token)
		r, err := c.etcd.Get(t.Context(), fmt.Sprintf("holdfast/broken/ABCDEFGHIJKLMNOP/%d", created), clientv3.WithCountOnly())
		if err != nil || r.Count != 1 {
			t.Errorf("P2: it is not told that it was broken: %v", err)
		}
		if r, err := c.etcd.Get(t.Context(), key); err != nil || len(r.Kvs) > 0 {
			t.Errorf("P4: its key is there after it was broken: %v", err)
		}
		take(t, c, request("holds"))
	})
	t.Run("waits", func(t *testing.T) {
		g := take(t, c, request("waits"))
		before := request("waits")
		line(t, c, before)
		old("waits")
		_, err := c.Enqueue(t.Context(), request("waits"))
		refuses("a place behind it", err)
		if n := keys(t, c, "waits"); n != 3 {
			t.Errorf("P6: %d keys are there, not 3", n)
		}
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Errorf("P2: the hold before it: %v", r.Err)
		}
		line(t, c, before) // the place before it stays
		if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(t.Context(), before); err != nil {
			t.Errorf("P7: the place before it: %v", err)
		}
	})
	t.Run("not in the layout stock", func(t *testing.T) {
		stock := dial(t, server.Addrs(), &Options{Layout: Stock})
		defer stock.Close()
		req := request("orders")
		req.Mode = driver.Shared
		g := take(t, stock, req)
		r, err := stock.etcd.Get(t.Context(), stock.layout.Dir("orders"), clientv3.WithPrefix())
		if err != nil || len(r.Kvs) != 1 || !strings.HasPrefix(string(r.Kvs[0].Value), `{"holdfast":1,`) {
			t.Errorf("a hold in the layout stock is %+v, %v", r, err)
		}
		if int64(g.Token) != r.Kvs[0].CreateRevision {
			t.Errorf("its token is %d, its key's create revision %d", g.Token, r.Kvs[0].CreateRevision)
		}
	})
}

// TestMixedFleet: in the layout stock our clients and etcd's own Mutex have one name in
// turn, and one guard tells who of them is the newest.
func TestMixedFleet(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	locks := openLocks(t, "etcd://"+server.Addrs()+"?hf.layout=stock")
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	var gate fence.Gate
	var mu sync.Mutex // guards the rest
	var last driver.Token
	var kinds [2]driver.Token // the last of each kind
	enter := func(kind int, token driver.Token) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if token <= last {
			t.Errorf("P3: token %d after %d", token, last)
		}
		if err := gate.Admit(token, driver.Exclusive); err != nil {
			t.Errorf("P3: %v", err)
		}
		if old := kinds[1-kind]; old != 0 {
			if err := gate.Admit(old, driver.Exclusive); !errors.Is(err, fence.ErrStale) {
				t.Errorf("P3: the other kind's holder from before is admitted: %v", err)
			}
		}
		last, kinds[kind] = token, token
	}
	const holds = 30
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range holds {
				lease, err := locks.Mutex("fleet/1", nil).Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				enter(0, lease.Token())
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			session, err := concurrency.NewSession(etcd)
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			for range holds {
				m := concurrency.NewMutex(session, "fleet/1")
				if err := m.Lock(t.Context()); err != nil {
					t.Error(err)
					return
				}
				r, err := etcd.Get(t.Context(), m.Key())
				if err != nil || len(r.Kvs) != 1 {
					t.Errorf("P1: the key of a hold: %+v, %v", r, err)
					return
				}
				enter(1, driver.Token(r.Kvs[0].CreateRevision))
				if err := m.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if caps := locks.Caps(); caps.TokenBlock != 1 {
		t.Errorf("a hold in the layout stock has %d tokens", caps.TokenBlock)
	}
	if kinds[0] == 0 || kinds[1] == 0 {
		t.Error("one kind never had the name")
	}
}
