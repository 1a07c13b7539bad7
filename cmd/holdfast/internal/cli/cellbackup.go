package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/server"
)

func (a *app) cellBackupCommand() *cobra.Command {
	return a.ofCell(cobra.Command{
		Use: "backup FILE", Short: "Write all that the cell has to a file", Args: oneArgument("the file to write"),
		Long: `Write all that the cell has, as it is at one instant, to a new FILE, or to the standard output if
FILE is -. 'holdfast cell restore' makes a cell of it. Whoever reads the file learns the contents of
all nodes, but no secret of a session.`,
		Example: `  holdfast cell backup /var/backups/cell-$(date +%F)`,
	}, func(ctx context.Context, c *cellStore, args []string) error {
		ctx, name := context.WithoutCancel(ctx), args[0] // it takes as long as it takes
		if name == "-" {
			_, err := backUp(ctx, c, os.Stdout)
			return err
		}
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return usagef("%s is there already", name)
		} else if err != nil {
			return usagef("%w", err)
		}
		n, err := backUp(ctx, c, file)
		if failed := errors.Join(file.Sync(), file.Close()); err == nil && failed != nil {
			err = &exitError{exitInternal, failed}
		}
		if err != nil { // restore refuses a file that is not whole, if this does not remove it
			os.Remove(name)
			return err
		}
		a.hint(fmt.Sprintf("%s: %s", name, sizeText(n)))
		return nil
	})
}

// backUp writes a backup to a file.
func backUp(ctx context.Context, c *cellStore, to *os.File) (written int64, err error) {
	err = c.Do(ctx, false, func(ctx context.Context, m *cell.Member) error {
		stream, err := m.Cell.Backup(ctx, &cellv1.BackupRequest{})
		if err != nil {
			return err
		}
		defer stream.Close()
		left := int64(-1)
		for stream.Receive() {
			n, err := to.Write(stream.Msg().Chunk)
			if written += int64(n); err != nil {
				return &exitError{exitInternal, err}
			}
			left = stream.Msg().Left
		}
		if err := stream.Err(); err != nil || left != 0 {
			return errors.Join(fmt.Errorf("the backup of %s is not whole", m.Address), err)
		}
		return nil
	})
	return written, err
}

func (a *app) cellRestoreCommand() *cobra.Command {
	var c server.Config
	var f memberFlags
	var revision int64
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make a new cell of a backup", Args: oneArgument("the backup"),
		Long: `Make the data of a member of a new cell out of a backup, and print the revision at which the cell
begins. Its --data must not be there yet. Do it for each member, with the same --member, and for
all but the first with the --revision that the first one printed. Then start them with
'holdfast serve' and the same --name, --data and --member.

The new cell has the files of the backup that belong to no session, and no locks. Its tokens are
larger than any before. Start it when the longest TTL and lock-delay of the old cell are over.

` + cellExitCodes,
		Example: `  holdfast cell restore /var/backups/cell --name b --data /var/lib/holdfast --revision 281474000 \
    --member a=https://10.0.0.1:7434 --member b=https://10.0.0.2:7434 \
    --member c=https://10.0.0.3:7434`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.complete(&c); err != nil {
				return err
			}
			begins, err := server.Restore(c, args[0], revision)
			switch {
			case errors.Is(err, server.ErrConfig):
				return usagef("%w", err)
			case err != nil:
				return &exitError{exitFailure, err}
			case a.output == "json":
				return printJSON(map[string]int64{"revision": begins})
			}
			_, err = fmt.Println(begins)
			return err
		},
	}
	f.add(cmd, &c)
	cmd.Flags().Int64Var(&revision, "revision", 0, "the `revision` that the first member's restore has printed")
	return cmd
}

// memberFlags are those flags that say which member of which cell is meant.
type memberFlags struct{ members []string }

func (f *memberFlags) add(cmd *cobra.Command, c *server.Config) {
	flags := cmd.Flags()
	flags.StringVar(&c.Name, "name", "one", "the member's `name` in its cell")
	flags.StringVar(&c.Data, "data", "", "`directory` for all that the member keeps")
	flags.StringArrayVar(&f.members, "member", nil, "`name=URL` of each member of a new cell, for the others")
}

// complete makes a configuration of what the flags say.
func (f *memberFlags) complete(c *server.Config) error {
	if c.Data == "" {
		dir, err := stateDir()
		if err != nil {
			return usagef("--data is missing: %w", err)
		}
		c.Data = filepath.Join(dir, "cell")
	}
	c.Members = map[string]string{}
	for _, m := range f.members {
		name, u, ok := strings.Cut(m, "=")
		if !ok || c.Members[name] != "" {
			return usagef("--member %.80q: name=https://host:port is right, once for each name", m)
		}
		c.Members[name] = u
	}
	return nil
}
