package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), TTL: 30 * time.Second}
}

func take(t *testing.T, c *client, req driver.Request) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context(), req)
	if err != nil {
		t.Fatalf("P7: Try of a free name: %v", err)
	}
	return g
}

// line puts a request into the queue, where it must wait.
func line(t *testing.T, c *client, req driver.Request) {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("P1: Enqueue of a held name: %v", err)
	}
}

// keys returns the keys of a name.
func keys(t *testing.T, c *client, name string) int64 {
	t.Helper()
	r, err := c.kv.Get(t.Context(), c.layout.Dir(name), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return r.Count
}

// TestWaiting: what can happen to a waiter besides being granted the name.
func TestWaiting(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for name, c := range map[string]struct {
		happens func(t *testing.T, waiter *client, req driver.Request)
		want    error
	}{
		"its lease is ended": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			lease := waiter.record(req.Name, req.Owner).session.Load().id
			waiter.mu.Unlock()
			if _, err := waiter.etcd.Revoke(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"its key is deleted": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.mu.Lock()
			key := waiter.key(waiter.record(req.Name, req.Owner))
			waiter.mu.Unlock()
			if _, err := waiter.etcd.Delete(t.Context(), key); err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"it is withdrawn": {func(t *testing.T, waiter *client, req driver.Request) {
			if err := waiter.Release(t.Context(), []driver.Grant{{Request: req}})[0]; err != nil {
				t.Error(err)
			}
		}, driver.ErrHeld},
		"the client is closed": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.Close()
		}, driver.ErrClosed},
		"the stream of watches breaks": {func(t *testing.T, waiter *client, req driver.Request) {
			waiter.hub.mu.Lock()
			defer waiter.hub.mu.Unlock()
			waiter.hub.stream.cancel()
		}, driver.ErrHeld},
	} {
		t.Run(name, func(t *testing.T) {
			holder, waiter := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
			defer holder.Close()
			defer waiter.Close()
			held := take(t, holder, request(name))
			req := request(name)
			line(t, waiter, req)
			begun := make(chan struct{})
			go func() { // when it watches
				defer close(begun)
				for {
					waiter.mu.Lock()
					p := waiter.places[waiter.record(req.Name, req.Owner)]
					watches := p != nil && p.waits != nil && p.waits.listens()
					waiter.mu.Unlock()
					if watches {
						c.happens(t, waiter, req)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := waiter.Wait(ctx, req); !errors.Is(err, c.want) {
				t.Errorf("Wait returned %v, not %v", err, c.want)
			}
			<-begun
			if err := holder.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyWaiters: more wait than are looked at, some leave, and all others are
// served in their order.
func TestManyWaiters(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	g := take(t, c, request("many"))
	const n = 4 * table.Nearby
	type served struct {
		i   int
		g   driver.Grant
		err error
	}
	order := make(chan served, n)
	var reqs []driver.Request
	for i := range n {
		req := request("many")
		line(t, c, req)
		reqs = append(reqs, req)
		go func() {
			for {
				g, err := c.Wait(t.Context(), req)
				if errors.Is(err, driver.ErrHeld) {
					if g, err = c.Enqueue(t.Context(), req); errors.Is(err, driver.ErrHeld) {
						continue
					}
				}
				order <- served{i, g, err}
				return
			}
		}()
	}
	gone := map[int]bool{}
	for _, i := range []int{0, 5, n - 2} { // these ask again, and come last or not at all
		gone[i] = true
		if err := c.Release(t.Context(), []driver.Grant{{Request: reqs[i]}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	last := -1
	for range n {
		select {
		case s := <-order:
			if gone[s.i] {
				continue // it was refused: an owner that was withdrawn comes to nothing
			}
			t.Errorf("P1: %d was granted a held name (%v)", s.i, s.err)
		case <-time.After(20 * time.Millisecond):
		}
		if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		var s served
		for {
			select {
			case s = <-order:
			case <-time.After(20 * time.Second):
				t.Fatal("P7: nobody was granted a free name")
			}
			if !gone[s.i] {
				break
			}
		}
		if s.err != nil || s.i < last {
			t.Fatalf("P8: %d came after %d (%v)", s.i, last, s.err)
		}
		if last, g = s.i, s.g; last == n-1 {
			return
		}
	}
}

// TestKeysAreUsedAgain: etcd keeps every key that there was until its history is
// compacted, and looks at it when it reads a range.
func TestKeysAreUsedAgain(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	seen := map[string]bool{}
	for range 20 {
		g := take(t, c, request("again"))
		r, err := c.kv.Get(t.Context(), c.layout.Dir("again"), clientv3.WithPrefix())
		if err != nil || len(r.Kvs) != 1 || r.Kvs[0].CreateRevision != c.layout.Created(g.Token) {
			t.Fatalf("a hold is the keys %v, %v", r, err)
		}
		seen[string(r.Kvs[0].Key)] = true
		if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 1 {
		t.Errorf("20 holds of one client had %d keys", len(seen))
	}
	if n := keys(t, c, "again"); n != 0 {
		t.Errorf("P9: %d keys are left", n)
	}
}

// TestCompare guards data in the same etcd.
func TestCompare(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	etcd := dialClient(t, server.Addrs())
	defer etcd.Close()
	lease, err := locks.Mutex("orders/42", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put := func() bool {
		r, err := etcd.Txn(t.Context()).If(Compare(lease)).Then(clientv3.OpPut("stock", "7")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Succeeded
	}
	if !put() {
		t.Error("P3: a holder could not write under its guard")
	}
	if err := lease.Renew(t.Context()); err != nil || !put() {
		t.Errorf("P3: after a renewal a holder could not write under its guard (%v)", err)
	}
	if err := locks.Break(t.Context(), "orders/42", lease.Token()); err != nil {
		t.Fatal(err)
	}
	if put() {
		t.Error("P1: a holder whose hold was broken could write under its guard")
	}
	lease.Release()
	next, err := locks.Mutex("orders/42", nil).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if put() {
		t.Error("P1: a former holder could write under its guard beside the next one")
	}
}

// TestFull: beyond its quota etcd takes no puts. Holds are renewed and released
// all the same, nothing hangs, and it goes on when there is room.
func TestFull(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick, Quota: 1 << 20})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	held, goes := take(t, c, request("held")), take(t, c, request("goes"))
	var err error
	for i := 0; err == nil; i++ {
		_, err = c.etcd.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 64<<10))
	}
	if _, err := c.Try(t.Context(), request("other")); err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: a full store answered %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{held})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew: %v", r.Err)
	}
	passed := held
	passed.Token, passed.HandedOver = held.Token+1, true
	if r := c.Renew(t.Context(), []driver.Grant{passed})[0]; r.Err != nil {
		t.Errorf("P2: a full store did not renew a hold that was handed over: %v", r.Err)
	}
	if err := c.Release(t.Context(), []driver.Grant{goes})[0]; err != nil {
		t.Errorf("P4: a full store did not release: %v", err)
	}
	again := dial(t, server.Addrs(), nil) // an operator wants to look
	defer again.Close()
	if info, err := again.Inspect(t.Context(), "held"); err != nil || len(info.Holders) != 1 {
		t.Errorf("P9: a full store shows %+v, %v", info, err)
	}
	r, err := c.etcd.Delete(t.Context(), "fill", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Defragment(t.Context(), server.Members[0].Addr); err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	take(t, c, request("other"))
}

// TestClaimAfterHold: a claim is renewed to count from itself or later, although
// the lease that it comes to is of another hold and was kept alive before.
func TestClaimAfterHold(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	holder, waiter := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), nil)
	defer holder.Close()
	defer waiter.Close()
	take(t, waiter, request("another"))
	held, req := take(t, holder, request("claimed")), request("claimed")
	places, err := waiter.session(t.Context(), waiter.minSeconds, waiter.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	line(t, waiter, req)
	if err := holder.Release(t.Context(), []driver.Grant{held})[0]; err != nil {
		t.Fatal(err)
	}
	claim, err := waiter.Wait(t.Context(), req)
	for errors.Is(err, driver.ErrHeld) {
		if claim, err = waiter.Enqueue(t.Context(), req); errors.Is(err, driver.ErrHeld) {
			claim, err = waiter.Wait(t.Context(), req)
		}
	}
	if err != nil || claim.Since < places.since {
		t.Fatalf("P7: a waiter got %+v, %v", claim, err)
	}
	r := waiter.Renew(t.Context(), []driver.Grant{claim})[0]
	if r.Err != nil || r.Since < claim.Since || r.Valid < req.TTL*3/4 {
		t.Errorf("P2: a claim from %v on is renewed as %+v", claim.Since, r)
	}
	if over := waiter.sessions[30].since.Add(req.TTL); r.Since.Add(r.Valid) > over {
		t.Errorf("P1: a claim is renewed for %v longer than its lease", r.Since.Add(r.Valid).Sub(over))
	}
}

// TestGrantAfterEnd: a hold whose session was found to have ended while the request
// that moves its key to another was under way can be renewed, and its key goes when
// nobody does.
func TestGrantAfterEnd(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	req := request("moved")
	req.TTL = c.caps.MinTTL
	before := take(t, c, req)
	r := c.reserve(&req)
	first := r.session.Load()
	c.end(first)
	select {
	case loss := <-c.losses:
		if len(loss.Owners) != 1 || loss.Owners[0] != req.Owner {
			t.Errorf("P2: of the end of a lease was told as %+v", loss)
		}
	default:
		t.Error("P2: of the end of a lease nothing was told")
	}
	g, err := c.adopt(t.Context(), r, &req, &table.Entry{Key: c.key(r), Created: c.layout.Created(before.Token)}, c.whole(&req))
	c.unreserve(r)
	if err != nil || g.Token != before.Token || r.session.Load() == first {
		t.Fatalf("the key was moved as %+v, %v", g, err)
	}
	if renewal := c.Renew(t.Context(), []driver.Grant{g})[0]; renewal.Err != nil {
		t.Errorf("P2: a hold whose key is there is not renewed: %v", renewal.Err)
	}
	known := true
	for deadline := time.Now().Add(20 * time.Second); known && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		// The lease is kept alive, so it is the client that deletes the key.
		if _, err := c.session(t.Context(), seconds(req.TTL), c.clock.Now()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		known = c.isKnownLocked(r)
		c.mu.Unlock()
	}
	if n := keys(t, c, req.Name); n > 0 || known {
		t.Errorf("P7: of a hold that nobody renews %d key stays; its record: %v", n, known)
	}
}

// TestOneKeepalive: one lease has the keys of many holds.
func TestOneKeepalive(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	var grants []driver.Grant
	for i := range 300 {
		grants = append(grants, take(t, c, request(fmt.Sprint("many/", i))))
	}
	leases, err := c.etcd.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(leases.Leases); n > 2 {
		t.Errorf("P9: 300 holds of one TTL are on %d leases", n)
	}
	for i, r := range c.Renew(t.Context(), grants) {
		if r.Err != nil || r.Since != c.sessions[30].since {
			t.Fatalf("P2: hold %d was renewed apart: %+v", i, r)
		}
	}
	for _, err := range c.Release(t.Context(), grants) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestShortTTL(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{})
	locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if got := locks.Caps().MinTTL; got != 2*time.Second {
		t.Errorf("the shortest lease of etcd as it is set up by default is taken for %v", got)
	}
	_, err = locks.Mutex("x", &holdfast.Options{TTL: 1500 * time.Millisecond}).Acquire(t.Context())
	if err == nil || !strings.Contains(err.Error(), "2s") {
		t.Errorf("P10: a TTL that etcd cannot keep: %v", err)
	}
}

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"etcd://":                                  "http://localhost:2379 user  prefix  layout ",
		"etcd://a,b,c:2/team/a":                    "http://a:2379,http://b:2379,http://c:2 user  prefix team/a layout ",
		"etcd://u:p%2F@a/x?hf.layout=stock":        "http://a:2379 user u prefix x layout stock",
		"etcds://[::1]:1":                          "https://[::1]:1 user  prefix  layout ",
		"etcd://a/?hf.layout=escaped":              "http://a:2379 user  prefix  layout escaped",
		"etcd://a?user=x":                          `unknown URL parameter "user"`,
		"etcd://a?hf.ca=x":                         `unknown URL parameter "hf.ca"`,
		"etcds://a?hf.ca=/nowhere":                 "hf.ca: open /nowhere",
		"etcds://a?hf.cert=x":                      "belong together",
		"etcd:a":                                   "malformed",
		"etcd://a,,b":                              "host 2 of the store URL is empty",
		"etcd://" + strings.Repeat("a,", 64) + "a": "at most 64",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		config, o, err := parse(u)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s user %s prefix %s layout %s", strings.Join(config.Endpoints, ","), config.Username, o.Prefix, o.Layout)
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s is %q, not %q", raw, got, want)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{
		{Layout: "other"}, {Prefix: "/a"}, {Prefix: strings.Repeat("a", table.MaxPrefix+1)}, {Poll: time.Microsecond},
	} {
		if _, err := New(t.Context(), nil, &o); err == nil {
			t.Errorf("P10: %+v was taken", o)
		}
	}
}
