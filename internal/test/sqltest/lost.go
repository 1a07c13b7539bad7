package sqltest

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// LostMeanwhile releases many holds at a time, of which the store ends one just before the statement that
// frees them: that one was lost, and its release says so. Lose makes the store end the hold of a name.
func LostMeanwhile(t *testing.T, inner sqldriver.Connector, open func(*sql.DB) (driver.Driver, error), lose func(name string)) {
	t.Helper()
	const holds, lost = 5, 3
	var grants []driver.Grant
	var releasing atomic.Bool
	h := &Hook{Connector: inner, Before: func(_ any, text string) error {
		frees := strings.Contains(text, "FOR UPDATE") || text == "BEGIN IMMEDIATE"
		if frees && releasing.CompareAndSwap(true, false) {
			lose(grants[lost].Name)
		}
		return nil
	}}
	d, err := open(h.Open(t))
	must(t, err)
	defer d.Close()
	for i := range holds {
		g, err := d.Try(t.Context(), driver.Request{Name: fmt.Sprintf("%s %d", t.Name(), i), Owner: fmt.Sprintf("%s owner %d", t.Name(), i), TTL: time.Hour})
		must(t, err)
		grants = append(grants, g)
	}
	releasing.Store(true)
	for i, err := range d.Release(t.Context(), grants) {
		if i == lost && !errors.Is(err, driver.ErrNotHeld) || i != lost && err != nil {
			t.Errorf("release %d of %d: %v; hold %d was lost before", i, holds, err, lost)
		}
	}
	if releasing.Load() {
		t.Error("no statement has freed the holds")
	}
}
