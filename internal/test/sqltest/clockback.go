package sqltest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// ClockBack: the server's clock is set back by an hour while names are held; ahead makes
// the rows as they are then, with times that lie in the future. A release frees at once,
// alone and in a batch, and tokens go on from those in the rows.
func ClockBack(t *testing.T, d driver.Driver, ahead func(by time.Duration)) {
	t.Helper()
	defer d.Close()
	var grants []driver.Grant
	for i := range 4 {
		r := driver.Request{Name: fmt.Sprintf("back/%d", i), Owner: fmt.Sprintf("%x", rand.Uint64()), TTL: time.Minute}
		g, err := d.Try(t.Context(), r)
		must(t, err)
		grants = append(grants, g)
	}
	ahead(time.Hour)
	for _, batch := range [][]driver.Grant{grants[:1], grants[1:3], grants[3:]} {
		if len(batch) == 1 && batch[0].Name == "back/3" {
			batch[0].Stray = true // the store has to remember it, in a record
		}
		for _, err := range d.Release(t.Context(), batch) {
			if err != nil {
				t.Errorf("P4: Release after the clock was set back: %v", err)
			}
		}
	}
	for _, g := range grants {
		last := g.Token + driver.Token(time.Hour.Microseconds())
		g.Owner = fmt.Sprintf("%x", rand.Uint64())
		next, err := d.Try(t.Context(), g.Request)
		if err != nil {
			t.Errorf("P5: the clock was set back by an hour, and a release of %s did not free it: %v", g.Name, err)
			continue
		}
		if next.Token <= last {
			t.Errorf("P3: the clock was set back by an hour, and token %d follows up to %d", next.Token, last)
		}
		d.Release(t.Context(), []driver.Grant{next})
	}
}
