package etcdlock

import (
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

// TestKeysAreUsedAgain: etcd keeps every key that there was until its history is
// compacted, and looks at it when it reads a range.
func TestKeysAreUsedAgain(t *testing.T) {
	server := shared(t)
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
	server := shared(t)
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

// TestClaimAfterHold: a claim is renewed to count from itself or later, although
// the lease that it comes to is of another hold and was kept alive before.
func TestClaimAfterHold(t *testing.T) {
	server := shared(t)
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

// TestOneKeepalive: one lease has the keys of many holds.
func TestOneKeepalive(t *testing.T) {
	server := shared(t)
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
