package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/sqllock"
)

// dialects are those that --dialect knows, by their names.
var dialects = []sqllock.Dialect{sqllock.Postgres, sqllock.MySQL, sqllock.SQLite}

func (a *app) schemaCommand() *cobra.Command {
	var dialect, tables string
	var names []string
	for _, d := range dialects {
		names = append(names, d.String())
	}
	cmd := &cobra.Command{
		Use:   "schema --dialect DIALECT",
		Short: "Print the SQL that creates the tables of a store in a database",
		Long: `Schema prints the statements that create the two tables in which a database keeps
locks. Holdfast runs them by itself if it may; this is for those whose user may not
create tables, or who keep all such statements among their migrations. Who uses the
locks then needs SELECT, INSERT, UPDATE and DELETE on both tables.`,
		Example: "  holdfast schema --dialect postgres | psql app",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			for _, d := range dialects {
				if d.String() == dialect {
					if err := sqllock.CheckPrefix(tables); err != nil {
						return usagef("--tables: %w", err)
					}
					_, err := fmt.Print(d.Schema(tables))
					return err
				}
			}
			return usagef("--dialect is %q: known are %s", dialect, strings.Join(names, ", "))
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "the database: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&tables, "tables", sqllock.DefaultPrefix, "what the tables' names begin with, as hf.tables in the URL")
	cmd.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
