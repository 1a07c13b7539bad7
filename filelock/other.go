//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"context"
	"errors"
	"runtime"

	"github.com/holdfastlock/holdfast/driver"
)

var errNoFlock = errors.New("filelock: file locks need flock, which " + runtime.GOOS + " does not have: use another store")

func open(context.Context, Options) (driver.Driver, error) { return nil, errNoFlock }

// CheckDir returns what is wrong with a directory as a place for locks, each in
// a sentence. Here it is always the system.
func CheckDir(string) []string { return []string{errNoFlock.Error()} }
