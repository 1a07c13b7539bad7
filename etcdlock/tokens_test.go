package etcdlock

import (
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// TestHandOverIsRecorded: the store gets to know the token of a hold that was handed over,
// and everything that is done with the hold goes by it.
func TestHandOverIsRecorded(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	other := dial(t, server.Addrs(), nil)
	shows := func(name string, token driver.Token, mode driver.Mode, note string) {
		t.Helper()
		info, err := other.Inspect(t.Context(), name)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != token || info.Holders[0].Mode != mode || info.Holders[0].Note != note {
			t.Errorf("P3: %s is shown as %+v, %v; token %d, %v, %q are right", name, info, err, token, mode, note)
		}
	}
	wide := func(name string) driver.Grant {
		req := request(name)
		req.Tokens, req.Note = 100, "a note"
		g := take(t, c, req)
		if g.Block != 100 || g.Token%1024 != 0 {
			t.Fatalf("P3: 100 tokens were asked for, the grant has %d from %d on", g.Block, g.Token)
		}
		g.Token, g.HandedOver = g.Token+7, true
		return g
	}
	t.Run("renewed", func(t *testing.T) {
		g := wide("renewed")
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil || r.Valid != g.TTL {
			t.Fatalf("P2: it is renewed as %+v", r)
		}
		shows(g.Name, g.Token, driver.Exclusive, "a note")
		g.Token += 92
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		shows(g.Name, g.Token, driver.Exclusive, "a note")
		for _, stale := range []driver.Token{g.Token - 99, g.Token - 92, g.Token - 1, g.Token + 1} {
			if err := other.Break(t.Context(), g.Name, stale); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("P4: a break with %d of a hold with token %d: %v", stale, g.Token, err)
			}
		}
		if err := other.Break(t.Context(), g.Name, g.Token); err != nil {
			t.Fatalf("P4: %v", err)
		}
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, driver.ErrBroken) {
			t.Errorf("P2: a hold that was broken is renewed: %v", r.Err)
		}
	})
	t.Run("downgraded", func(t *testing.T) {
		g := wide("downgraded")
		shared, err := c.Downgrade(t.Context(), g)
		if err != nil || shared.Token != g.Token || shared.Mode != driver.Shared {
			t.Fatalf("P3: a downgrade of %+v gives %+v, %v", g, shared, err)
		}
		shows(g.Name, g.Token, driver.Shared, "a note")
		reader := request(g.Name)
		reader.Mode = driver.Shared
		if next, err := other.Try(t.Context(), reader); err != nil || next.Token <= g.Token {
			t.Errorf("P3: a reader after a writer with token %d: %d, %v", g.Token, next.Token, err)
		}
	})
	t.Run("released", func(t *testing.T) {
		g := wide("released")
		g.Token += 92 // the last of its block
		release(t, c, g)
		if next := take(t, other, request(g.Name)); next.Token <= g.Token {
			t.Errorf("P3: token %d after %d", next.Token, g.Token)
		}
	})
}
