//go:build !linux

package alarm

import "github.com/holdfastlock/holdfast/driver"

func newTimer(_ driver.Clock, fire func()) timer { return newPortable(fire) }
