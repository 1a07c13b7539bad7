//go:build soak

package etcdlock

import (
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestMixedFleet: in the layout stock our clients and etcd's own Mutex wait for one another and have one name
// in turn. One guard tells who of them is the newest.
func TestMixedFleet(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	locks := openLocks(t, "etcd://"+server.Addrs()+"/team?hf.layout=stock")
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	var gate fence.Gate
	var mu sync.Mutex // held while the name is: TryLock must never fail
	var last driver.Token
	var had [2]bool
	enter := func(kind int, token driver.Token) {
		t.Helper()
		if !mu.TryLock() {
			t.Error("P1: two hold the name")
			return
		}
		defer mu.Unlock()
		time.Sleep(time.Millisecond)
		if token <= last {
			t.Errorf("P3: token %d after %d", token, last)
		}
		if err := gate.Admit(token, driver.Exclusive); err != nil {
			t.Errorf("P3: %v", err)
		}
		last, had[kind] = token, true
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
				m := concurrency.NewMutex(session, "team/fleet/1")
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
	if !had[0] || !had[1] {
		t.Error("one kind never had the name")
	}
}

// TestElection: package election and etcd's own Election elect one leader between them, one after the other, and
// each shows the other's.
func TestElection(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	session, err := concurrency.NewSession(etcd)
	must(t, err)
	defer session.Close()
	ours := election.New(openLocks(t, "etcd://"+server.Addrs()+"/team/a?hf.layout=stock"), "office", nil)
	theirs := concurrency.NewElection(session, "team/a/office")
	ctx := t.Context()
	leads := func(value string) {
		t.Helper()
		if l, err := ours.Leader(ctx); err != nil || l.Vacant || l.Value != value {
			t.Errorf("%q leads, our Leader shows %+v, %v", value, l, err)
		}
		if r, err := theirs.Leader(ctx); err != nil || string(r.Kvs[0].Value) != value {
			t.Errorf("%q leads, etcd's Leader shows %v, %v", value, r, err)
		}
	}
	must(t, theirs.Campaign(ctx, "theirs"))
	leads("theirs")
	must(t, theirs.Proclaim(ctx, `{"theirs": 2}`))
	leads(`{"theirs": 2}`)
	elected := make(chan *election.Leadership, 1)
	go func() {
		l, err := ours.Campaign(ctx, "ours")
		if err != nil {
			t.Error(err)
		}
		elected <- l
	}()
	select {
	case <-elected:
		t.Fatal("P1: our election elected another beside etcd's")
	case <-time.After(50 * time.Millisecond): // it must come to it early or late
	}
	must(t, theirs.Resign(ctx))
	l := <-elected
	leads("ours")
	campaigned := make(chan error, 1)
	go func() { campaigned <- theirs.Campaign(ctx, "theirs, again") }()
	select {
	case err := <-campaigned:
		t.Errorf("P1: etcd's Election elected another beside ours: %v", err)
	case <-time.After(50 * time.Millisecond): // it must come to it early or late
	}
	must(t, l.Resign())
	must(t, <-campaigned)
	leads("theirs, again")
}
