//go:build soak

package zklock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// TestNodesOfOthers: nodes that other programs make exclude, in the order of the server's numbers, also
// where that has wrapped.
func TestNodesOfOthers(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	java.container("/wrap")
	make := func(name string) string {
		java.must(zk.Create("/wrap/"+name, nil, nil, zk.Ephemeral))
		return "/wrap/" + name
	}
	// A node with a negative number is before those with low ones that came later.
	holder, second := make(someone+"lock--2147483640"), make(someone+"lock--000000001")
	r := request("wrap")
	refused(t, c, request("wrap"))
	queue(t, c, r)
	java.must(zk.Delete(holder, zk.AnyVersion))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	if _, err := c.Wait(ctx, r); err == nil {
		t.Error("P1: a place with the number 0 or more is granted before -1")
	}
	cancel()
	java.must(zk.Delete(second, zk.AnyVersion))
	release(t, c, granted(t, c, r))
	release(t, c, take(t, c, request("wrap")))
}

// TestDowngradeOfJava: Java's downgrade makes the reader's node with the writer's number, and then deletes
// the writer's. Meanwhile two nodes have one number.
func TestDowngradeOfJava(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	java.container("/rw")
	writer := java.must(zk.Create("/rw/"+someone+stemWrite, nil, nil, zk.Ephemeral|zk.Sequential)).Path
	w, r := request("rw"), request("rw")
	w.RW, r.RW, r.Mode = true, true, driver.Shared
	queue(t, c, w)
	queue(t, c, r)
	reader := java.must(zk.Create("/rw/"+someone+stemRead+writer[len(writer)-10:], nil, nil, zk.Ephemeral)).Path
	refused(t, c, request("rw"))
	java.must(zk.Delete(writer, zk.AnyVersion))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	if _, err := await(ctx, c, w); err == nil {
		t.Error("P1: a writer is let in beside a downgraded hold")
	}
	cancel()
	java.must(zk.Delete(reader, zk.AnyVersion))
	release(t, c, granted(t, c, w))
	release(t, c, granted(t, c, r))
}

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

// TestBreakIsTold: a hold whose node is deleted, by whomever, is told as broken without a renewal.
func TestBreakIsTold(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	for _, change := range []func(*driver.Request){
		func(*driver.Request) {},
		func(r *driver.Request) { r.Mode, r.Slots, r.Permits = driver.Slot, 5, 2 },
	} {
		r := request("broken")
		change(&r)
		g := take(t, c, r)
		eventually(t, "the watches on the hold's nodes", func() bool { return watches(t, x.Members[0]) == max(1, r.Permits) })
		dir := "/broken"
		if r.Mode == driver.Slot {
			dir = "/broken/leases"
		}
		for _, child := range java.children(dir) {
			if _, ok := parseEntry(child); ok {
				java.must(zk.Delete(dir+"/"+child, zk.AnyVersion))
				break
			}
		}
		select {
		case loss := <-c.Losses():
			if len(loss.Owners) != 1 || loss.Owners[0] != r.Owner || !errors.Is(loss.Err, driver.ErrBroken) {
				t.Errorf("told was %+v", loss)
			}
		case <-time.After(within):
			t.Fatal("P2: a broken hold is not told")
		}
		if err := c.Renew(t.Context(), []driver.Grant{g})[0].Err; !errors.Is(err, driver.ErrBroken) {
			t.Errorf("P2: renewing a broken hold: %v", err)
		}
		// Nothing is left of it.
		eventually(t, "the rest of the hold to be deleted", func() bool { return countEntries(java.children(dir)) == 0 })
		eventually(t, "no watch is left", func() bool { return watches(t, x.Members[0]) == 0 })
	}
}

func countEntries(names []string) int { return len(parseChildren(names).entries) }

// TestDataOfAHoldIsNoBreak: somebody who writes to a hold's node breaks nothing.
func TestDataOfAHoldIsNoBreak(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	c, java := x.open(t), x.raw(t)
	g := take(t, c, request("data"))
	for range 3 {
		eventually(t, "the watch on the hold's node", func() bool { return watches(t, x.Members[0]) == 1 })
		java.must(zk.SetData("/data/"+java.children("/data")[0], []byte("x"), zk.AnyVersion))
	}
	if err := c.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P2: renewing: %v", err)
	}
	select {
	case loss := <-c.Losses():
		t.Errorf("P2: told was %+v", loss)
	default:
	}
	release(t, c, g)
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
		if err := Revoke(t.Context(), other, "wanted"); err != nil {
			t.Fatal(err)
		}
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
	release(t, holder, g)
	if err := Revoke(t.Context(), driver.Forward{Driver: other}, "wanted"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("revoking in another store: %v", err)
	}
	if err := Revoke(t.Context(), other, "a//b"); err == nil {
		t.Error("P10: revoking a malformed name")
	}
}
