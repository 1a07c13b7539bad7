package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// pair returns a client with faults and one without on the same store.
func pair(t *testing.T, o chaos.Options) (faulty *chaos.Driver, direct driver.Driver) {
	t.Helper()
	store := memlock.NewStore(nil)
	faulty, direct = chaos.New(store.Client(), o), store.Client()
	t.Cleanup(func() {
		faulty.Close()
		direct.Close()
	})
	return faulty, direct
}

func request(owner string) driver.Request {
	return driver.Request{Name: "n", Owner: owner, TTL: time.Hour}
}

// holder returns who holds the name.
func holder(t *testing.T, d driver.Driver) string {
	t.Helper()
	info, err := wrap.Forward{Driver: d}.Inspect(context.Background(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Holders) == 0 {
		return ""
	}
	return info.Holders[0].Owner
}

// uncertain asserts what a driver returns when it does not know.
func uncertain(t *testing.T, g driver.Grant, err error, cause error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUncertain) || !errors.Is(err, cause) {
		t.Errorf("error %v is not ErrUncertain because of %v", err, cause)
	}
	if g.Owner == "" || g.Token != 0 || g.Valid != 0 {
		t.Errorf("%+v is not a request to withdraw", g)
	}
}

func TestDropReply(t *testing.T) {
	d, direct := pair(t, chaos.Options{DropReply: 1})
	ctx := context.Background()
	g, err := d.Try(ctx, request("a"))
	uncertain(t, g, err, chaos.ErrLost)
	if h := holder(t, direct); h != "a" {
		t.Errorf("a request whose reply was dropped did not arrive: %q holds the name", h)
	}
	if r := d.Renew(ctx, []driver.Grant{g, g}); len(r) != 2 || !errors.Is(r[1].Err, chaos.ErrLost) || driver.Gone(r[1].Err) {
		t.Errorf("Renew: %+v", r)
	}
	if e := d.Release(ctx, []driver.Grant{g}); len(e) != 1 || !errors.Is(e[0], chaos.ErrLost) || driver.Gone(e[0]) {
		t.Errorf("Release: %v", e)
	}
	if h := holder(t, direct); h != "" {
		t.Errorf("a release whose reply was dropped did not arrive: %q holds the name", h)
	}
	if _, err := d.Downgrade(ctx, g); !errors.Is(err, chaos.ErrLost) {
		t.Errorf("Downgrade: %v", err)
	}
	if err := d.Break(ctx, "n", 1); !errors.Is(err, chaos.ErrLost) {
		t.Errorf("Break: %v", err)
	}
}

func TestDelaysTakeTime(t *testing.T) {
	for name, o := range map[string]chaos.Options{
		"request": {Delay: 1, MaxDelay: time.Minute},
		"reply":   {HoldReply: 1, MaxDelay: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, direct := pair(t, o)
				begun := time.Now()
				if _, err := d.Try(context.Background(), request("a")); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took == 0 || took > time.Minute {
					t.Errorf("a late %s took %v", name, took)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
				defer cancel()
				g, err := d.Try(ctx, driver.Request{Name: "m", Owner: "b", TTL: time.Hour})
				uncertain(t, g, err, context.DeadlineExceeded)
				info, _ := wrap.Forward{Driver: direct}.Inspect(context.Background(), "m")
				if arrived := len(info.Holders) == 1; arrived != (name == "reply") {
					t.Errorf("with a late %s the request arrived: %v", name, arrived)
				}
			})
		})
	}
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, direct := pair(t, chaos.Options{})
		g, err := d.Try(context.Background(), request("a"))
		if err != nil {
			t.Fatal(err)
		}
		d.Partition()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if r := d.Renew(ctx, []driver.Grant{g}); !errors.Is(r[0].Err, context.DeadlineExceeded) {
			t.Errorf("Renew: %+v", r[0])
		}
		if _, err := d.Wait(ctx, request("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		if _, err := d.Inspect(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Inspect: %v", err)
		}
		for _, err := range d.List(ctx, "") {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("List: %v", err)
			}
		}
		released := make(chan error)
		go func() { released <- d.Release(context.Background(), []driver.Grant{g})[0] }()
		synctest.Wait()
		d.Heal()
		if err := <-released; !errors.Is(err, chaos.ErrPartitioned) {
			t.Errorf("Release during a partition that healed: %v", err)
		}
		if h := holder(t, direct); h != "a" {
			t.Errorf("a request arrived through a partition: %q holds the name", h)
		}
		if r := d.Renew(context.Background(), []driver.Grant{g}); r[0].Err != nil {
			t.Errorf("Renew after the partition: %v", r[0].Err)
		}
	})
}

func TestHoldReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, direct := pair(t, chaos.Options{})
		d.HoldReplies()
		granted := make(chan error)
		go func() {
			_, err := d.Try(context.Background(), request("a"))
			granted <- err
		}()
		synctest.Wait()
		if h := holder(t, direct); h != "a" {
			t.Errorf("the request has not arrived: %q holds the name", h)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g, err := d.Enqueue(ctx, request("b"))
		uncertain(t, g, err, context.DeadlineExceeded)
		d.ReleaseReplies()
		if err := <-granted; err != nil {
			t.Errorf("a late reply was lost: %v", err)
		}
	})
}

func TestHoldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, direct := pair(t, chaos.Options{})
		d.HoldRequests()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g, err := d.Try(ctx, request("a"))
		uncertain(t, g, err, context.DeadlineExceeded)
		if h := holder(t, direct); h != "" {
			t.Errorf("a request that is held back arrived: %q holds the name", h)
		}
		waits := make(chan error)
		go func() {
			_, err := d.Try(context.Background(), driver.Request{Name: "m", Owner: "b", TTL: time.Hour})
			waits <- err
		}()
		synctest.Wait()
		d.ReleaseRequests()
		if h := holder(t, direct); h != "a" {
			t.Errorf("a late request did not arrive: %q holds the name", h)
		}
		if err := <-waits; err != nil {
			t.Errorf("a request that waited was not let through: %v", err)
		}
		d.ReleaseRequests() // nothing is left to let through
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore(nil)
		direct := store.Client()
		defer direct.Close()
		ctx := context.Background()
		for name, closes := range map[string]func(*chaos.Driver){
			"partition": (*chaos.Driver).Partition, "replies": (*chaos.Driver).HoldReplies, "requests": (*chaos.Driver).HoldRequests,
			"random partition": func(*chaos.Driver) {},
		} {
			o := chaos.Options{}
			if name == "random partition" {
				o = chaos.Options{Partition: 1, MaxDelay: time.Hour}
			}
			d := chaos.New(store.Client(), o)
			closes(d)
			done := make(chan error)
			go func() {
				_, err := d.Try(ctx, driver.Request{Name: name, Owner: name, TTL: time.Hour})
				done <- err
			}()
			synctest.Wait()
			if err := d.Close(); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
			if err := <-done; !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%s: a call that waited returned %v, not ErrClosed", name, err)
			}
			d.ReleaseRequests() // arrives nowhere any more
			if err := d.Close(); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("%s: second Close: %v", name, err)
			}
		}
	}) // and the bubble has found no goroutine left
}

// TestSeed: the same seed and the same calls meet the same faults.
func TestSeed(t *testing.T) {
	run := func(seed uint64) string {
		d, _ := pair(t, chaos.Options{Seed: seed, DropRequest: 0.3, DropReply: 0.3, Duplicate: 0.3})
		var faults string
		for i := range 100 {
			r := driver.Request{Name: fmt.Sprint(i), Owner: "a", TTL: time.Hour}
			if _, err := d.Try(context.Background(), r); err != nil {
				faults += "x"
			} else {
				faults += "."
			}
		}
		return faults
	}
	one, again, other := run(1), run(1), run(2)
	if one != again {
		t.Errorf("seed 1 gave\n%s, and then\n%s", one, again)
	}
	if one == other {
		t.Errorf("seeds 1 and 2 gave the same faults")
	}
}

// opens is a driver that refuses the first Try and grants the second.
type opens struct {
	driver.Driver
	tries int
}

func (o *opens) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if o.tries++; o.tries == 1 {
		return driver.Grant{}, driver.ErrHeld
	}
	return o.Driver.Try(ctx, r)
}

// TestRefusedTryArrivesOnce: else the caller would hold what it was refused.
func TestRefusedTryArrivesOnce(t *testing.T) {
	inner := &opens{Driver: memlock.NewStore(nil).Client()}
	d := chaos.New(inner, chaos.Options{Duplicate: 1})
	defer d.Close()
	if _, err := d.Try(context.Background(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Try: %v", err)
	}
	if inner.tries != 1 {
		t.Errorf("a refused Try arrived %d times", inner.tries)
	}
	if _, err := d.Try(context.Background(), request("a")); err != nil || inner.tries != 3 {
		t.Errorf("a granted Try: %v, %d arrivals in all", err, inner.tries)
	}
}
