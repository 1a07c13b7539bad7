//go:build !(linux || darwin || freebsd)

package doctor

import "context"

// fileSpace cannot tell on this system.
func fileSpace(context.Context, Patient) []Finding { return nil }
