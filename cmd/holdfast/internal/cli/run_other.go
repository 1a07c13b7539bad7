//go:build !unix

package cli

import "errors"

// run needs process groups and signals.
func (a *app) run(*runFlags, string, []string) error {
	return &exitError{exitUsage, errors.New("run is not available on this system: it needs the process groups of Unix")}
}
