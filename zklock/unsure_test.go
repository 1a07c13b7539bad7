package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// TestShortPoll: a claim of two short polls, in a session that was last written long before.
func TestShortPoll(t *testing.T) {
	x := fixture{start(t)}
	clock := &handClock{}
	clock.pass(time.Hour)
	const poll = time.Second
	a, b := x.open(t), x.openWith(t, Config{Poll: poll, Clock: clock})
	g, r := take(t, a, request("short")), request("short")
	queue(t, b, r)
	for range 4 {
		clock.pass(poll)
		queue(t, b, r) // confirms the place
	}
	release(t, a, g)
	claim := granted(t, b, r)
	if left := claim.Since.Add(claim.Valid).Sub(clock.Now()); left < poll {
		t.Errorf("P7: a claim of two polls of %v has %v left when it is granted", poll, left)
	}
	if renewal := b.Renew(t.Context(), []driver.Grant{claim})[0]; renewal.Err != nil {
		t.Errorf("P8: the claim is lost: %v", renewal.Err)
	}
}

// TestManyPermits: more permits than a transaction makes are refused before anything is asked for.
func TestManyPermits(t *testing.T) {
	x := fixture{start(t)}
	c := x.open(t)
	r := request("many")
	r.Mode, r.Slots = driver.Slot, 20000
	most := c.mostPermits(&r)
	before := received(t, x.Members[0])
	for method, ask := range map[string]func(context.Context, driver.Request) (driver.Grant, error){"Try": c.Try, "Enqueue": c.Enqueue, "Wait": c.Wait} {
		r.Permits = most + 1
		if _, err := ask(t.Context(), r); !errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrUncertain) {
			t.Errorf("P10: %s of %d permits: %v", method, r.Permits, err)
		}
	}
	if n := received(t, x.Members[0]) - before; n > 3 { // the asking, and pings
		t.Errorf("P10: what is refused has cost %d requests", n)
	}
	if left := x.raw(t).children("/many"); len(left) > 0 {
		t.Errorf("P9: what is refused leaves %q", left)
	}
	r.Permits = most
	release(t, c, take(t, c, r))
}

// TestKindAfterALostAnswer: a name is in use as another kind, and the answer that would have said so was lost.
func TestKindAfterALostAnswer(t *testing.T) {
	x := fixture{start(t)}
	for name, held := range map[string]driver.Mode{"semaphore": driver.Slot, "mutex": driver.Exclusive} {
		t.Run("held as a "+name, func(t *testing.T) {
			t.Parallel()
			proxy := chaos.StartProxy(t, x.Members[0].Addr)
			other, c := x.open(t), dial(t, Config{Servers: []string{proxy.Addr}})
			t.Cleanup(func() { c.Close() })
			first, r := request("kind/"+name), request("kind/"+name)
			semaphore := &first
			if held == driver.Exclusive {
				semaphore = &r
			}
			semaphore.Mode, semaphore.Slots, semaphore.Permits = driver.Slot, 2, 1
			g := take(t, other, first)
			warm := request("warm/" + name)
			release(t, c, take(t, c, warm)) // its session is open
			java := x.raw(t)
			path := "/kind/" + name
			if held == driver.Exclusive {
				path += "/" + locksDir
			}
			proxy.HoldReplies()
			ctx, cancel := context.WithCancel(t.Context())
			asked := make(chan error, 1)
			go func() {
				_, err := c.Try(ctx, r)
				asked <- err
			}()
			eventually(t, "the node is made", func() bool {
				replies, err := java.Do(t.Context(), zk.Children(path, nil))
				return err == nil && replies[0].Err == nil && len(parseChildren(replies[0].Children).entries) > 0
			})
			cancel()
			if err := <-asked; !errors.Is(err, driver.ErrUncertain) {
				t.Errorf("P6: a Try without an answer: %v", err)
			}
			proxy.Heal()
			got, err := c.Try(t.Context(), r)
			if !errors.Is(err, driver.ErrMismatch) {
				t.Errorf("P10: %s was granted beside %s: %+v, %v", r.Mode, first.Mode, got, err)
			}
			c.Release(t.Context(), []driver.Grant{{Request: r}})
			release(t, other, g)
		})
	}
}
