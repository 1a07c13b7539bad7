package pgconn

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/sqllock"
)

func TestForgotten(t *testing.T) {
	db := openDB(t, shared(t))
	sqltest.Forgotten(t, db, func(longest time.Duration) driver.Driver {
		d, err := New(t.Context(), db, &sqllock.Options{MaxTTL: longest})
		must(t, err)
		return d
	})
}
