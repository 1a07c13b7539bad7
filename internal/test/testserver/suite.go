package testserver

import (
	"errors"
	"testing"
)

// BuildFlags returns the flags with which a test builds a program of this repository: those of the
// test's own suite, so that the go command finds in its cache what it has compiled for the test.
func BuildFlags() []string {
	return Long([]string{"-trimpath"}, []string{"-trimpath", "-tags", "soak"})
}

// Long returns the first of two values in the gate, and the second in the soak: how long a
// history is, or how deep a search.
func Long[T any](gate, soak T) T {
	if Soak {
		return soak
	}
	return gate
}

// Must ends the test if one of the errors is not nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
