package sqltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Contended lets many clients change one row at the same time: they take, renew and release
// shared holds. Each step must be carried out exactly once. It closes the drivers.
func Contended(t *testing.T, drivers ...driver.Driver) {
	t.Helper()
	const each, rounds = 3, 10
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := fmt.Sprintf("contended/%x", rand.Uint64())
	var wg sync.WaitGroup
	for i, d := range drivers {
		for j := range each {
			wg.Go(func() {
				for k := range rounds {
					r := driver.Request{Name: name, Owner: fmt.Sprintf("reader %d.%d.%d of %s", i, j, k, name), Mode: driver.Shared, TTL: time.Minute}
					g, err := d.Try(ctx, r)
					if err == nil {
						err = d.Renew(ctx, []driver.Grant{g})[0].Err
					}
					if err == nil {
						err = d.Release(ctx, []driver.Grant{g})[0]
					}
					if err != nil {
						t.Errorf("P7: one of many readers: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if info, err := drivers[0].(driver.Operator).Inspect(ctx, name); err != nil || !info.Idle() {
		t.Errorf("P4: when all readers have gone the name is %+v, %v", info, err)
	}
	for _, d := range drivers {
		if err := d.Close(); err != nil && !errors.Is(err, driver.ErrClosed) {
			t.Error(err)
		}
	}
}
