//go:build soak

package zklock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// TestDowngradeSeenByOthers: the token of a downgraded hold is the writer's, also for who inspects it.
func TestDowngradeSeenByOthers(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, other, java := x.open(t), x.open(t), x.raw(t)
	r := request("rw")
	r.RW = true
	g := take(t, c, r)
	g.Claim = true // as of a waiter that was granted the name
	shared, err := c.Downgrade(t.Context(), g)
	if err != nil || shared.Token != g.Token || shared.Claim {
		t.Fatalf("downgrading: %+v, %v", shared, err)
	}
	kids := java.children("/rw")
	if len(kids) != 1 || !strings.Contains(kids[0], stemRead) {
		t.Errorf("the children are %q", kids)
	}
	info, err := other.Inspect(t.Context(), "rw")
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != g.Token || info.Holders[0].Note != r.Note || info.Holders[0].Mode != driver.Shared {
		t.Errorf("another client sees %+v, %v", info, err)
	}
	if err := other.Break(t.Context(), "rw", g.Token); err != nil {
		t.Errorf("breaking a downgraded hold by its token: %v", err)
	}
	if err := c.Renew(t.Context(), []driver.Grant{shared})[0].Err; !errors.Is(err, driver.ErrBroken) {
		t.Errorf("renewing it: %v", err)
	}
}

// TestRevoke: who asks for a lock is heard by its holder, who may go on.
func TestRevoke(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	type call struct {
		name  string
		token driver.Token
	}
	calls := make(chan call, 10)
	holder := x.openWith(t, Config{OnRevoke: func(name string, token driver.Token) { calls <- call{name, token} }})
	other := x.open(t)
	if err := Revoke(t.Context(), other, "wanted"); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("revoking a free name: %v", err)
	}
	g := take(t, holder, request("wanted"))
	for range 2 { // it may be asked for again
		must(t, Revoke(t.Context(), other, "wanted"))
		select {
		case got := <-calls:
			if got != (call{"wanted", g.Token}) {
				t.Errorf("OnRevoke is called with %+v", got)
			}
		case <-time.After(within):
			t.Fatal("OnRevoke is not called")
		}
	}
	if err := holder.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P2: renewing a hold that is asked for: %v", err)
	}
	if n := len(holder.Losses()); n > 0 {
		t.Errorf("P2: of a hold that is asked for %d losses were told", n)
	}
	release(t, holder, g)
	if err := Revoke(t.Context(), wrap.Forward{Driver: other}, "wanted"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("revoking in another store: %v", err)
	}
	if err := Revoke(t.Context(), other, "a//b"); err == nil {
		t.Error("P10: revoking a malformed name")
	}
}
