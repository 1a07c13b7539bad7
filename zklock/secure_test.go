//go:build soak

package zklock

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// openURL opens a store by its URL.
func openURL(t *testing.T, raw string) (*client, error) {
	t.Helper()
	u, err := driver.ParseURL(raw)
	must(t, err)
	d, err := driver.Open(t.Context(), u)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { d.Close() })
	return d.(*client), nil
}

// TestTLS: who has no certificate that the server trusts is not let in, nor is one who does not trust
// the server.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := testserver.Certificate(t, t.TempDir(), "", 1)
	strangers, strangersKey := testserver.Certificate(t, t.TempDir(), "", 1)
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: quick, Cert: cert, Key: key, ClientCA: cert})
	store := "zks://" + server.TLSAddrs()
	for query, why := range map[string]string{
		"":               "without an authority or a certificate",
		"?hf.ca=" + cert: "without a certificate",
		"?hf.ca=" + cert + "&hf.cert=" + strangers + "&hf.key=" + strangersKey: "with a certificate that nobody trusts",
		"?hf.cert=" + cert + "&hf.key=" + key:                                  "although the server is not trusted",
	} {
		if _, err := openURL(t, store+query); err == nil {
			t.Errorf("P10: a store is opened %s", why)
		}
	}
	mine := store + "?hf.ca=" + cert + "&hf.cert=" + cert + "&hf.key=" + key
	a, err := openURL(t, mine)
	must(t, err)
	b, err := openURL(t, mine)
	must(t, err)
	g := take(t, a, request("secure"))
	r := request("secure")
	queue(t, b, r)
	release(t, a, g)
	release(t, b, granted(t, b, r))
}

// TestDigest: of what a user makes a stranger can neither see nor delete anything, and errors show no
// password.
func TestDigest(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	a, err := openURL(t, "zk://worker:p%40ss%3Aword@"+x.Addrs()+"/team")
	must(t, err)
	b, err := openURL(t, "zk://worker:p%40ss%3Aword@"+x.Addrs()+"/team")
	must(t, err)
	slots := request("sem")
	slots.Mode, slots.Slots, slots.Permits = driver.Slot, 2, 1
	for _, r := range []driver.Request{request("orders/42"), slots} {
		g := take(t, a, r)
		next := r
		next.Owner = "the next"
		next.Permits = r.Slots
		queue(t, b, next)
		release(t, a, g)
		release(t, b, granted(t, b, next))
	}

	g := take(t, a, request("orders/42"))
	stranger := x.raw(t)
	node := a.owners[ownerKey{g.Name, g.Owner}].nodes[0]
	if replies, err := stranger.Do(t.Context(), zk.Delete(node, zk.AnyVersion)); err != nil || !errors.Is(replies[0].Err, zk.NoAuth) {
		t.Errorf("a stranger deletes the node of a hold: %v, %v", replies, err)
	}
	for _, user := range []string{"", "worker:wrong@", "other:p%40ss%3Aword@"} {
		_, err := openURL(t, "zk://"+user+x.Addrs()+"/team")
		if err == nil || !errors.Is(err, zk.NoAuth) || strings.Contains(err.Error(), "wrong") || strings.Contains(err.Error(), "p%40") || strings.Contains(err.Error(), "p@") {
			t.Errorf("P10: a stranger opens the store: %v", err)
		}
	}
	if err := a.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P4: the hold is gone: %v", err)
	}
	release(t, a, g)

	// With hf.acl=open everybody may.
	open, err := openURL(t, "zk://worker:pw@"+x.Addrs()+"/all?hf.acl=open")
	must(t, err)
	anybody, err := openURL(t, "zk://"+x.Addrs()+"/all")
	must(t, err)
	// Who may not make a parent is refused for certain: there is nothing to be withdrawn.
	root, err := openURL(t, "zk://"+x.Addrs())
	must(t, err)
	if _, err := root.Enqueue(t.Context(), request("team/another/42")); !errors.Is(err, zk.NoAuth) || errors.Is(err, driver.ErrUncertain) {
		t.Errorf("P6: a lock below what is another user's: %v", err)
	}
	g = take(t, open, request("orders/42"))
	refused(t, anybody, request("orders/42"))
	if err := anybody.Break(t.Context(), "orders/42", g.Token); err != nil {
		t.Errorf("breaking: %v", err)
	}
}
