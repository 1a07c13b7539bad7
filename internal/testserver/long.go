package testserver

import "os"

// Long returns the second of two values if HOLDFAST_LONG is 1, as in make test-all, else the
// first. Nothing else reads that variable: a test that runs longer, or more often, then passes
// both values to Long.
func Long[T any](normal, long T) T {
	if os.Getenv("HOLDFAST_LONG") == "1" {
		return long
	}
	return normal
}
