package wrap

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
	"github.com/holdfastlock/holdfast/memlock"
)

// bare hides all that a driver can do beyond the core.
type bare struct{ driver.Driver }

// counting counts the requests of another driver.
type counting struct {
	Forward
	tries, queued int
}

func (c *counting) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	c.tries++
	return c.Forward.Try(ctx, r)
}

func (c *counting) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	c.queued++
	return c.Forward.Enqueue(ctx, r)
}

func has[T any](d driver.Driver) bool {
	_, ok := driver.As[T](d)
	return ok
}

// abilities says which of the optional interfaces driver.As finds.
func abilities(d driver.Driver) map[string]bool {
	return map[string]bool{
		"Queuer": has[driver.Queuer](d), "Notifier": has[driver.Notifier](d), "Sharder": has[driver.Sharder](d), "Operator": has[driver.Operator](d),
		"Downgrader": has[driver.Downgrader](d), "Watcher": has[driver.Watcher](d),
		"Raiser": has[vote.Raiser](d),
	}
}

// TestAs: a wrapper, and a wrapper of a wrapper, has what its driver has, also where it overrides a method.
func TestAs(t *testing.T) {
	d := memlock.NewStore(nil).Client()
	if !abilities(d)["Queuer"] {
		t.Fatal("memlock does not queue")
	}
	for name, inner := range map[string]driver.Driver{"everything": d, "the core": bare{d}} {
		want := abilities(inner)
		for _, outer := range []driver.Driver{Forward{inner}, &counting{Forward: Forward{Forward{inner}}}} {
			if got := abilities(outer); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: a wrapper has %v, its driver %v", name, got, want)
			}
		}
	}
}

// TestUnsupported: what the inner driver lacks is refused, and the rest reaches it.
func TestUnsupported(t *testing.T) {
	ctx, r := t.Context(), driver.Request{Name: "x", Owner: "a", TTL: 1e9}
	c := &counting{Forward: Forward{bare{memlock.NewStore(nil).Client()}}}
	if _, err := c.Try(ctx, r); err != nil || c.tries != 1 {
		t.Errorf("Try through a wrapper: %v", err)
	}
	_, enqueue := c.Enqueue(ctx, r)
	_, wait := c.Wait(ctx, r)
	_, inspect := c.Inspect(ctx, "x")
	_, downgrade := c.Downgrade(ctx, driver.Grant{})
	_, watch := c.Watch(ctx, "x")
	for what, err := range map[string]error{
		"Enqueue": enqueue, "Wait": wait, "Inspect": inspect, "Break": c.Break(ctx, "x", 1), "Downgrade": downgrade,
		"Watch": watch, "Raise": c.Raise(ctx, make([]driver.Grant, 1))[0].Err,
	} {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s of a driver without it: %v", what, err)
		}
	}
	if c.Losses() != nil || c.Shard(r) != "" || c.Contended("x") || c.Wakes("x") != nil {
		t.Error("a wrapper makes up what its driver lacks")
	}
}
