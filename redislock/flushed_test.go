package redislock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestFlushed: P1: a server that was flushed grants nothing until the longest TTL of all clients is over, in each layout
// that has the rule.
func TestFlushed(t *testing.T) {
	for _, layout := range []Layout{"", SetNX} {
		t.Run(string(layout), func(t *testing.T) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			open := func(longest time.Duration) driver.Driver {
				d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: layout, MaxTTL: longest})
				testserver.Must(t, err)
				t.Cleanup(func() { d.Close() })
				return d
			}
			short, tries := open(time.Minute), 0
			forgotten := func(want time.Duration) {
				t.Helper()
				tries++
				name := fmt.Sprint("n", tries)
				_, err := short.Try(t.Context(), driver.Request{Name: name, Owner: "of " + name, TTL: time.Second})
				held, _ := errors.AsType[*driver.HeldError](err)
				switch {
				case want == 0:
					testserver.Must(t, err)
				case held == nil || held.Forgotten > want+want/100+2*time.Millisecond || held.Forgotten < want*9/10:
					t.Errorf("not granted for about %v: %v, %+v", want, err, held)
				}
			}
			forgotten(0)
			server.Ask("FLUSHALL")
			forgotten(time.Minute)
			open(time.Hour)
			forgotten(time.Hour)
			if _, err := short.Try(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Hour}); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("a hold that outlasts the longest TTL: %v", err)
			}
		})
	}
}
