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

// CheckDir returns what is wrong with a directory as a directory of locks, each in a
// sentence. Here it is always the system.
func CheckDir(string) []string { return []string{errNoFlock.Error()} }

// CheckPlace returns what is wrong with a directory as a place for files with locks in
// them, each in a sentence. Here it is not known.
func CheckPlace(string) []string { return nil }
