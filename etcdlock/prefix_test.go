package etcdlock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func plainRequest(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: time.Minute}
}

// TestOthersRemains: what a store whose prefix goes on where the keys of a name begin
// keeps of withdrawn requests and broken holds is no hold of that name.
func TestOthersRemains(t *testing.T) {
	server := shared(t)
	a, b := dial(t, server.Addrs(), nil), dial(t, server.Addrs(), &Options{Prefix: "holdfast/lock"})
	defer a.Close()
	defer b.Close()
	if err := b.Release(t.Context(), []driver.Grant{{Request: plainRequest("any", "withdrawn")}})[0]; err != nil {
		t.Fatal(err)
	}
	if err := b.Break(t.Context(), "other", take(t, b, plainRequest("other", "broken")).Token); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "broken"} {
		if _, err := a.Try(t.Context(), plainRequest(name, "owner of "+name)); err != nil {
			t.Errorf("P7: the free name %s: %v", name, err)
		}
	}
}
