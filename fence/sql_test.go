package fence

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
)

// What the statements do is tested on real databases, by package fencetest.

// noTx panics when it is used.
type noTx struct{ Tx }

// TestAdmitTxRefusesBeforeIO: names and pools, too, are refused before any I/O.
func TestAdmitTxRefusesBeforeIO(t *testing.T) {
	for _, name := range []string{"", "a//b", "a\n", strings.Repeat("x", 513)} {
		if err := AdmitTx(t.Context(), MySQL, noTx{}, name, 1, exclusive); !errors.Is(err, ErrInvalid) {
			t.Errorf("name %.20q: %v", name, err)
		}
	}
	pools := []Tx{new(sql.DB), struct{ *sql.DB }{new(sql.DB)}}
	for _, pool := range pools {
		if err := AdmitTx(t.Context(), Postgres, pool, "a", 1, exclusive); err == nil || !strings.Contains(err.Error(), "*sql.DB") {
			t.Errorf("%T: %v", pool, err)
		}
	}
}
