package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	strict := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store for what would break a lock",
		Long: `Check the store and this host. Each finding is ok, note, warning or error, and says what
can go wrong and what to do. Doctor takes a lock of its own and releases it; it changes
nothing else. What it could not see it reports as not seen, or not at all.

The worst finding decides the exit code: 1 for an error; with --strict, 2 for a warning;
else 0. With -q only what is not ok is printed.

With -o json there is one object per finding:
    {"check", "severity", "found", "risk", "remedy"}

` + exitCodes,
		Example: `  holdfast doctor
  holdfast doctor --store file:///var/lib/locks -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := a.parseStore()
			if err != nil {
				return err
			}
			p := doctor.Patient{URL: u}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.wait)
			defer cancel()
			opening, opened := context.WithTimeout(ctx, a.wait/2) // time is left to ask each server by itself
			defer opened()
			s, err := a.open(opening)
			if p.Err = err; err == nil {
				p.Client = s.Client
			}
			findings := doctor.Examine(ctx, p)
			if s != nil {
				s.Close()
			}
			if err := a.printFindings(findings); err != nil {
				return err
			}
			switch doctor.Worst(findings) {
			case doctor.Error:
				return &exitError{exitFailure, nil}
			case doctor.Warning:
				if strict {
					return &exitError{exitWarning, nil}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "a warning is a failure too: exit code 2")
	return cmd
}

func (a *app) printFindings(findings []doctor.Finding) error {
	for _, f := range findings {
		if a.quiet && f.Severity == doctor.OK {
			continue
		}
		if a.output == "json" {
			if err := printJSON(f); err != nil {
				return err
			}
			continue
		}
		text := fmt.Sprintf("%-8s %s: %s\n", f.Severity, f.Check, flat(f.Found))
		if f.Severity != doctor.OK {
			text += fmt.Sprintf("         risk:   %s\n         remedy: %s\n", flat(f.Risk), flat(f.Remedy))
		}
		if _, err := os.Stdout.WriteString(text); err != nil {
			return err
		}
	}
	return nil
}
