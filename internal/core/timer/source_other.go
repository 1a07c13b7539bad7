//go:build !linux

package timer

import "github.com/holdfastlock/holdfast/driver"

func newSource(_ driver.Clock, fire func()) source { return newPortable(fire) }
