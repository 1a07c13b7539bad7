package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/sqldialect"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/txlock"
)

// dialects are the values of --dialect.
var dialects = []sqldialect.Dialect{sqldialect.Postgres, sqldialect.MySQL, sqldialect.SQLite}

// parts are the packages that need something in a database, and "locks".
var parts = []string{"locks", "txlock", "fence", "optimistic"}

// versionColumn is printed for package optimistic, which needs no table of its own.
const versionColumn = `-- Package optimistic has no table: each of your own that it is to change needs
--   version BIGINT NOT NULL DEFAULT 0
`

func (a *app) schemaCommand() *cobra.Command {
	var dialect, tables string
	var names []string
	for _, d := range dialects {
		names = append(names, d.String())
	}
	cmd := &cobra.Command{
		Use:   "schema --dialect DIALECT [" + strings.Join(parts, "] [") + "]",
		Short: "Print the SQL that creates the tables of a store in a database",
		Long: `Print the statements that create tables, by default the three tables for locks. Holdfast
creates those itself if its database user may. Use schema if that user may not create
tables, or if you keep all such statements among your migrations. The user then needs
SELECT, INSERT, UPDATE and DELETE on all of them.

Holdfast never creates the tables of the packages txlock (names that you lock in your own
transactions) and fence (the highest token that a resource has seen): you do.`,
		Example: `  holdfast schema --dialect postgres | psql app
  holdfast schema --dialect mysql fence txlock`,
		ValidArgs: parts,
		Args:      cobra.OnlyValidArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = parts[:1]
			}
			if err := sqllock.CheckPrefix(tables); err != nil {
				return usagef("--tables: %w", err)
			}
			known := slices.Index(names, dialect)
			if known < 0 {
				return usagef("--dialect is %q: known are %s", dialect, strings.Join(names, ", "))
			}
			d := dialects[known]
			texts := []string{sqllock.Schema(d, tables), txlock.Schema(d) + ";\n", fence.Schema(d) + ";\n", versionColumn}
			all := ""
			for i, part := range parts {
				if slices.Contains(args, part) {
					all += texts[i]
				}
			}
			_, err := fmt.Print(all)
			return err
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "the database: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&tables, "tables", sqllock.DefaultPrefix,
		"what the names of the tables of locks begin with, as hf.tables in the URL")
	cmd.RegisterFlagCompletionFunc("dialect",
		cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
