package sqltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// Forgetful is a store that forgets holds which it has acknowledged.
type Forgetful struct {
	URL    string
	Lag    func() // from now on what the store acknowledges is not kept
	Forget func() // it forgets that
}

// Forgets lets a store forget a hundred holds that it has acknowledged, and another client ask for their names. Without
// the rule of package life nearly all of them get a second holder while the first one trusts its lease. With it none
// does, and the names open when the longest TTL is over.
func Forgets(t *testing.T, way string, start func(*testing.T) Forgetful) {
	const names, ttl = 100, 20 * time.Second
	for _, rule := range []string{"hf.forget=go", "hf.maxttl=" + ttl.String()} {
		t.Run(way+", "+rule, func(t *testing.T) {
			testserver.TakeTurn(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			s := start(t)
			mark := "?"
			if strings.Contains(s.URL, mark) {
				mark = "&"
			}
			open := func() *holdfast.Client {
				locks, err := holdfast.Open(ctx, s.URL+mark+rule)
				must(t, err)
				t.Cleanup(func() { locks.Close() })
				return locks
			}
			first, other := open(), open()
			s.Lag()
			leases := map[string]*holdfast.Lease{}
			for i := range names {
				name := fmt.Sprint("name", i)
				lease, err := first.Mutex(name, &holdfast.Options{TTL: ttl, RenewEvery: -1}).Acquire(ctx)
				must(t, err)
				leases[name] = lease
			}
			s.Forget()
			began := time.Now()
			var mu sync.Mutex
			var work sync.WaitGroup
			two, served := 0, 0
			for name, lease := range leases {
				work.Go(func() {
					_, err := other.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx)
					for ; err != nil && ctx.Err() == nil; _, err = other.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx) {
					} // the fail-over may be under way
					trusted := lease.Err() == nil
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						served++
					}
					if err == nil && trusted {
						two++
					}
				})
			}
			work.Wait()
			t.Logf("%d of %d names had two holders; all were granted %v after the store forgot", two, names, time.Since(began).Round(time.Millisecond))
			switch {
			case served < names:
				t.Errorf("P7: %d of %d names were granted", served, names)
			case rule == "hf.forget=go" && two < names/2:
				t.Errorf("the store is said to forget, and only %d names had two holders", two)
			case rule != "hf.forget=go" && two > 0:
				t.Errorf("P1: %d names had two holders", two)
			}
		})
	}
}
