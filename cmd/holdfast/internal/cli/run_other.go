//go:build !unix

package cli

import "github.com/spf13/cobra"

// run and elect need the process groups and signals of Unix.
func (a *app) runCommand() *cobra.Command   { return needsUnix("run") }
func (a *app) electCommand() *cobra.Command { return needsUnix("elect") }

func needsUnix(verb string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: "Run a command (not available on this system)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("running commands is not available on this system: it needs the process groups of Unix")
		},
	}
}
