//go:build !unix

package cli

import "errors"

// elect needs what run needs.
func (a *app) elect(*electFlags, string, []string) error { return a.run(nil, "", nil) }

// run needs process groups and signals.
func (a *app) run(*runFlags, string, []string) error {
	return &exitError{exitUsage, errors.New("running commands is not available on this system: " +
		"it needs the process groups of Unix")}
}
