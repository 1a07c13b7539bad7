// Package forgettest lets stores forget holds that they have acknowledged.
package forgettest

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

// Store is one that forgets.
type Store struct {
	Before, After string                 // URLs of the store, without the parameters of the rule
	Lag           func()                 // from now on what the store acknowledges is not kept
	Forget        func()                 // it forgets that
	Has           func(name string) bool // nil: it forgets all names
}

// Run lets a store forget a hundred holds that it has acknowledged, and another client ask for their names. Without the
// rule of package life nearly all of them get a second holder while the first one trusts its lease. With it none does,
// and the names open when the longest TTL is over. More are parameters of stores that keep the rule, too.
func Run(t *testing.T, way string, start func(*testing.T) Store, more ...string) {
	const names, ttl = 100, 20 * time.Second
	waits := "hf.maxttl=" + ttl.String()
	rules := []string{"hf.forget=go", waits}
	for _, m := range more {
		rules = append(rules, waits+"&"+m)
	}
	for _, rule := range rules {
		t.Run(way+", "+rule, func(t *testing.T) {
			testserver.TakeTurn(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			s := start(t)
			open := func(url string) *holdfast.Client {
				mark := "?"
				if strings.Contains(url, mark) {
					mark = "&"
				}
				locks, err := holdfast.Open(ctx, url+mark+rule)
				testserver.Must(t, err)
				t.Cleanup(func() { locks.Close() })
				return locks
			}
			first, other := open(s.Before), (*holdfast.Client)(nil)
			if s.Before == s.After {
				other = open(s.After) // it knows the store from before
			}
			s.Lag()
			leases := map[string]*holdfast.Lease{}
			for i := 0; len(leases) < names; i++ {
				name := fmt.Sprint("name", i)
				if s.Has == nil || s.Has(name) {
					lease, err := first.Mutex(name, &holdfast.Options{TTL: ttl, RenewEvery: -1}).Acquire(ctx)
					testserver.Must(t, err)
					leases[name] = lease
				}
			}
			s.Forget()
			began := time.Now()
			if other == nil {
				other = open(s.After)
			}
			var mu sync.Mutex
			var work sync.WaitGroup
			two, served, latest := 0, 0, time.Duration(0)
			for name, lease := range leases {
				work.Go(func() {
					for ctx.Err() == nil {
						if _, err := other.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx); err != nil {
							continue // the fail-over may be under way
						}
						trusted := lease.Err() == nil
						mu.Lock()
						defer mu.Unlock()
						if served++; trusted {
							two++
						}
						latest = max(latest, time.Since(began))
						return
					}
				})
			}
			work.Wait()
			t.Logf("%d of %d names had two holders; all were granted %v after the store forgot", two, names, latest.Round(time.Millisecond))
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
