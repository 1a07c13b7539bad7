package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell/server"
)

// longestToken is how long a token may be valid: a principal gets another one before that.
const longestToken = 10 * 365 * 24 * time.Hour

func (a *app) cellTokenCommand() *cobra.Command {
	var valid time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a bearer token for a principal",
		Long: `Make a new bearer token, and print it and then the line that belongs among the tokens of its
principal, in the file that 'holdfast serve --principals' names. The line does not tell the token.
No cell is asked, and no store is needed.

A principal may have two tokens that are valid. To replace one, put the new one beside it on each
member, give it to the clients, and remove the old one.

Exit codes:
    0   done
   64   wrong usage`,
		Example: `  holdfast cell token --valid 2160h
  holdfast cell token -o json | jq -r .token`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if valid < time.Second || valid > longestToken {
				return usagef("--valid %v: between 1s and %v are right", valid, longestToken)
			}
			token, entry := server.NewToken(time.Now().Add(valid))
			if a.output == "json" {
				return printJSON(map[string]any{"token": token, "entry": entry})
			}
			line, err := json.Marshal(entry)
			if err == nil {
				_, err = fmt.Printf("%s\n%s\n", token, line)
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&valid, "valid", 365*24*time.Hour, "`time` for which the token is valid")
	return cmd
}
