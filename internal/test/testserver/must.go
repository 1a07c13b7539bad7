package testserver

import (
	"errors"
	"testing"
)

// Must ends the test if one of the errors is not nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
