package faults

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/memlock"
)

func TestOverlaps(t *testing.T) {
	hold := func(name string, token holdfast.Token, from, until driver.Instant) Hold {
		return Hold{Name: name, Token: token, From: from, Until: until}
	}
	for name, c := range map[string]struct {
		holds              []Hold
		overlaps, disorder int
	}{
		"one after the other":  {[]Hold{hold("a", 2, 20, 30), hold("a", 1, 10, 20)}, 0, 0},
		"different names":      {[]Hold{hold("a", 2, 10, 30), hold("b", 1, 10, 20)}, 0, 0},
		"overlap":              {[]Hold{hold("a", 1, 10, 30), hold("a", 2, 29, 40)}, 1, 0},
		"beside a long one":    {[]Hold{hold("a", 1, 10, 90), hold("a", 2, 20, 30), hold("a", 3, 40, 50)}, 2, 0},
		"never trusted":        {[]Hold{hold("a", 1, 10, 30), hold("a", 2, 20, 20), hold("a", 3, 0, 25)}, 0, 0},
		"the same token":       {[]Hold{hold("a", 1, 10, 20), hold("a", 1, 20, 30)}, 0, 1},
		"tokens that go down":  {[]Hold{hold("a", 9, 10, 20), hold("a", 8, 30, 40)}, 0, 1},
		"both, of two holders": {[]Hold{hold("a", 2, 10, 20), hold("a", 1, 15, 25)}, 1, 1},
	} {
		if o, d := Overlaps(c.holds), Disorder(c.holds); len(o) != c.overlaps || len(d) != c.disorder {
			t.Errorf("%s: found %q and %q", name, o, d)
		}
	}
}

// TestWatch: a hold that ends is trusted until its deadline, and one that is broken not after the last poll before.
func TestWatch(t *testing.T) {
	c, err := holdfast.New(memlock.NewStore(nil).Client(), nil)
	testserver.Must(t, err)
	defer c.Close()
	take := func(o *holdfast.Options) *holdfast.Lease {
		lease, err := c.Mutex("x", o).Acquire(t.Context())
		testserver.Must(t, err)
		return lease
	}
	const ttl = 100 * time.Millisecond
	lease, from := take(&holdfast.Options{TTL: ttl, RenewEvery: -1}), driver.HostClock.Now()
	h := Watch(lease, nil, nil)
	if h.Lost == "" || h.From < from || h.Until <= h.From || h.Until > from.Add(ttl) {
		t.Errorf("a hold of %v that ends: %+v", ttl, h)
	}
	lease.Release()

	lease = take(nil)
	broken := driver.Instant(0)
	h = Watch(lease, nil, func() {
		if broken == 0 {
			broken = driver.HostClock.Now()
			if err := c.Break(t.Context(), "x", lease.Token()); err != nil {
				t.Error(err)
			}
		}
	})
	if h.Lost == "" || h.From == 0 || h.Until > driver.HostClock.Now() {
		t.Errorf("a hold that was broken after %v: %+v", broken, h)
	}
	if found := Late([]Hold{{Late: 0}, {Late: -1}, {Late: 1}}); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}
