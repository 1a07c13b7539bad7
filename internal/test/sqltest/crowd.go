package sqltest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// DeadCrowd lets a client wait behind a hundred that are killed together, each with connections of its own. When
// the holder releases the name they delay it by three polls at most (P7).
func DeadCrowd(t *testing.T, open func() driver.Driver) {
	t.Helper()
	testserver.TakeTurn(t)
	const dead, name = 100, "dead crowd"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder := open()
	defer holder.Close()
	g, err := holder.Try(ctx, driver.Request{Name: name, Owner: "the holder", TTL: time.Minute})
	must(t, err)
	locks, err := holdfast.New(open(), nil)
	must(t, err)
	defer locks.Close()
	var all [dead]driver.Driver
	var requests [dead]driver.Request
	for i := range all {
		all[i], requests[i] = open(), driver.Request{Name: name, Owner: rand.Text(), TTL: time.Minute}
	}
	waiting := func() (ofDead, alive int) {
		info, err := holder.(driver.Operator).Inspect(ctx, name)
		must(t, err)
		for _, w := range info.Waiters {
			if slices.ContainsFunc(requests[:], func(r driver.Request) bool { return r.Owner == w.Owner }) {
				ofDead++
			} else {
				alive++
			}
		}
		return ofDead, alive
	}
	var wg sync.WaitGroup
	for n := 0; n < dead*9/10; n, _ = waiting() { // on a busy machine the first places are over before the last are taken
		for i, d := range all {
			wg.Go(func() {
				if _, err := d.(driver.Queuer).Enqueue(ctx, requests[i]); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Enqueue on a held name returned %v", err)
				}
			})
		}
		wg.Wait()
	}
	for _, d := range all {
		wg.Go(func() { d.Close() }) // which withdraws nothing
	}
	defer wg.Wait()
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex(name, nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for _, alive := waiting(); alive == 0; _, alive = waiting() {
	}
	released := time.Now()
	must(t, holder.Release(ctx, []driver.Grant{g})[0])
	if err := <-got; err != nil {
		t.Fatalf("P7: behind dead clients: %v", err)
	}
	if took, bound := time.Since(released), 3*holder.Caps().PollInterval(); took > bound {
		t.Errorf("P7: %d dead clients have delayed a live one by %v, longer than %v", dead, took, bound)
	}
}
