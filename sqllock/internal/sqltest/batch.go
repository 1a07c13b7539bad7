package sqltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Batches renews and releases many holds at a time. Some of them were released, broken or
// are waited for, and each must get its own answer. The driver's poll is TwinPoll.
func Batches(t *testing.T, d driver.Driver) {
	t.Helper()
	ctx, q := t.Context(), d.(fullDriver)
	const many, gone, broken, waited, closing = 300, 7, 70, 200, 270
	const shared, sharedGone, sharedBroken, neighbour, sharedEnd = 100, 120, 130, 140, 200 // shared holds; two are at one name
	seed := rand.Uint64()                                                                  // the store may have been used before
	var grants []driver.Grant
	for i := range many {
		r := driver.Request{Name: fmt.Sprintf("batches/%d/%x", i, seed), Owner: fmt.Sprintf("an owner %d of %x", i, seed), TTL: time.Minute}
		if i >= shared && i < sharedEnd {
			r.Mode = driver.Shared
		}
		if i == neighbour {
			r.Name = grants[i-1].Name
		}
		g, err := d.Try(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	for _, i := range []int{gone, sharedGone} {
		if err := d.Release(ctx, []driver.Grant{grants[i]})[0]; err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{broken, sharedBroken} {
		if err := q.Break(ctx, grants[i].Name, grants[i].Token); err != nil {
			t.Fatal(err)
		}
	}
	waiter := driver.Request{Name: grants[waited].Name, Owner: fmt.Sprintf("a waiter of %x", seed), TTL: time.Minute}
	if _, err := q.Enqueue(ctx, waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	grants[closing].MinHold = time.Minute

	want := func(i int) error {
		switch i {
		case gone, sharedGone:
			return driver.ErrNotHeld
		case broken, sharedBroken:
			return driver.ErrBroken
		}
		return nil
	}
	for i, r := range d.Renew(ctx, grants) {
		if !errors.Is(r.Err, want(i)) {
			t.Errorf("P2: renewal %d in a batch returned %v, not %v", i, r.Err, want(i))
		}
	}
	for i, err := range d.Release(ctx, grants) {
		if !errors.Is(err, want(i)) {
			t.Errorf("P4: release %d in a batch returned %v, not %v", i, err, want(i))
		}
	}
	for i, g := range grants {
		info, err := q.Inspect(ctx, g.Name)
		switch {
		case err != nil:
			t.Fatal(err)
		case i == waited && (len(info.Holders) != 1 || info.Holders[0].Owner != waiter.Owner):
			t.Errorf("P7: a release in a batch did not hand the name over: %+v", info)
		case i == closing && (len(info.Holders) != 0 || info.ClosedFor == 0):
			t.Errorf("P5: a release in a batch did not keep the name closed: %+v", info)
		case i != waited && i != closing && !info.Idle():
			t.Errorf("P4: a release in a batch left %+v", info)
		}
	}
}
