package testserver

import "os"

// Long returns the second of two values if HOLDFAST_LONG is 1, as in make test-all,
// else the first. It is the only place where that is read: what a test does longer, or more
// often, then is what it passes to Long.
func Long[T any](normal, long T) T {
	if os.Getenv("HOLDFAST_LONG") == "1" {
		return long
	}
	return normal
}
