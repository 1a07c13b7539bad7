package fallback_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/memlock"
)

// down:// is a store that cannot be connected to while closed is true. With ?less it cannot do what
// other stores can.
var closed atomic.Bool

var downStore = memlock.NewStore(nil)

func init() {
	driver.Register("down", func(_ context.Context, u *url.URL) (driver.Driver, error) {
		switch {
		case u.Query().Has("wrong"):
			return nil, errors.New("wrong password")
		case closed.Load():
			return nil, syscall.ECONNREFUSED
		case u.Query().Has("less"):
			return changed(downStore.Client(), func(c *driver.Caps) { c.Slots = false }), nil
		}
		return downStore.Client(), nil
	})
}

func mustURL(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := driver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// await waits until a condition holds.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// TestOpen: the first store may be down when the program starts. It is opened when it answers, and
// is called the same as if it had been there from the beginning.
func TestOpen(t *testing.T) {
	o := &fallback.Options{Silence: time.Second, After: -1}
	first, second := mustURL(t, "down://user:secret@host/db"), memlock.NewStore(nil)
	there, err := fallback.Open(t.Context(), first, second.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()

	closed.Store(true)
	d, err := fallback.Open(t.Context(), first, second.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := holdfast.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if d.Caps().Store != there.Caps().Store || strings.Contains(d.Caps().Store, "secret") {
		t.Errorf("the store is called %q and %q", d.Caps().Store, there.Caps().Store)
	}
	lease, err := c.Mutex("x", nil).Acquire(t.Context())
	if err != nil || !lease.Degraded() {
		t.Fatalf("%v, %v", lease, err)
	}
	closed.Store(false)
	await(t, "the first store", func() bool { return !d.Status().Open })
	release(t, lease)
	next, err := c.Mutex("x", nil).Acquire(t.Context())
	if err != nil || next.Degraded() {
		t.Fatalf("%v, %v", next, err)
	}
	release(t, next)

	for bad, says := range map[string]string{
		"down://host?wrong": "wrong password", "mem://second": "the second store is the first", "nosuch://host": "no driver for URL scheme",
	} {
		same, err := driver.Open(t.Context(), mustURL(t, "mem://second"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fallback.Open(t.Context(), mustURL(t, bad), same, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
		same.Close()
	}

	closed.Store(true)
	// A store that turns out to lack what the client was promised is not used.
	less, err := fallback.Open(t.Context(), mustURL(t, "down://host?less"), second.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer less.Close()
	closed.Store(false)
	await(t, "the reason", func() bool {
		err := less.Status().Err
		return err != nil && strings.Contains(err.Error(), "can do less")
	})
	g, err := less.Try(t.Context(), driver.Request{Name: "s", Owner: "o", Mode: driver.Slot, Slots: 2, Permits: 1, TTL: time.Minute})
	if err != nil || !g.Degraded {
		t.Errorf("%+v, %v", g, err)
	}
	less.Release(t.Context(), []driver.Grant{g})
}
