package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/internal/display"
)

func (a *app) filesCommand() *cobra.Command {
	above := &cobra.Command{
		Use:   "files",
		Short: "Read and write the small files of a cell",
		Long: `Read and write the small files of a cell, the lock service that 'holdfast serve' runs. Each is read
and written as a whole, and has at most 256 KiB. Each has numbers that only grow: its instance, and
the generations of its contents and of its rights.

The store must be a cell: --store cell://HOST:PORT, or HOLDFAST_STORE.`,
	}
	above.AddCommand(
		a.ofCell(cobra.Command{
			Use: "ls [PATH]", Short: "List the files below a path", Args: cobra.MaximumNArgs(1),
			Long:    `List what is right below a path, or at the top. A name with a slash at its end has files below it.`,
			Example: `  holdfast files ls app -o json | jq -r .path`,
		}, a.filesLs),
		a.ofCell(cobra.Command{
			Use: "get PATH", Short: "Print a file", Args: oneArgument("the path"),
			Long: `Print the contents of a file as they are. With -o json print what is known of the file instead, and
no contents.`,
		}, func(ctx context.Context, c *cellStore, args []string) error {
			n, contents, err := c.Get(ctx, c.in(args[0]))
			if err != nil || a.output == "json" {
				return a.printNode(c, n, err)
			}
			_, err = os.Stdout.Write(contents)
			return err
		}),
		a.filesPutCommand(),
		a.aimed(cobra.Command{
			Use: "rm PATH", Short: "Remove a file", Args: oneArgument("the path"),
			Long: `Remove a file that has no files below it.`,
		}, func(ctx context.Context, c *cellStore, args []string, want cell.If) error {
			return c.Delete(ctx, c.in(args[0]), want)
		}),
		a.filesWatchCommand(), a.filesACLCommand(),
	)
	return above
}

// printNode prints a file as JSON that a call has answered with.
func (a *app) printNode(c *cellStore, n *cell.Node, err error) error {
	if err != nil {
		return err
	}
	n.Path = c.out(n.Path)
	return printJSON(n)
}

func (a *app) filesLs(ctx context.Context, c *cellStore, args []string) error {
	l := a.list("PATH", "SIZE", "GENERATION", "SESSION")
	for n, err := range c.ReadDir(ctx, strings.TrimSuffix(c.in(strings.Join(args, "")), "/")) {
		if err != nil {
			return err
		}
		n.Path = c.out(n.Path)
		row := []string{n.Path}
		if n.HasChildren {
			row[0] += "/"
		}
		if n.Instance != 0 {
			row = append(row, fmt.Sprint(n.Size), fmt.Sprint(n.ContentGeneration), n.Session)
		}
		l.add(n, row...)
	}
	return l.print("there are no files")
}

// aimed is ofCell for a command with flags that say which file it means.
func (a *app) aimed(cmd cobra.Command, do func(context.Context, *cellStore, []string, cell.If) error) *cobra.Command {
	var generation, instance int64
	made := a.ofCell(cmd, func(ctx context.Context, c *cellStore, args []string) error {
		want := cell.If{Instance: instance}
		if generation != -1 {
			want.Generation = &generation
		}
		if generation < -1 || instance < 0 {
			return usagef("generations and instances are not negative")
		}
		return do(ctx, c, args, want)
	})
	made.Flags().Int64Var(&generation, "if-generation", -1, "only if the file is of this `generation`")
	made.Flags().Int64Var(&instance, "instance", 0, "only if the file has this `number`")
	return made
}

// mostContents is how large a file may be, in bytes.
const mostContents = 256 << 10

func (a *app) filesPutCommand() *cobra.Command {
	return a.aimed(cobra.Command{
		Use: "put PATH [FILE]", Short: "Write a file", Args: cobra.RangeArgs(1, 2),
		Long: `Write a file of the cell with the contents of FILE, or of the standard input. It is made if it is
not there. With --if-generation it is written only if nobody else has written it since it was read;
with --if-generation 0 only if it is not there.`,
		Example: `  echo 10.0.0.7:8080 | holdfast files put app/leader
  holdfast files put app/config config.json --if-generation 4711`,
	}, func(ctx context.Context, c *cellStore, args []string, want cell.If) (err error) {
		in := os.Stdin
		if len(args) == 2 && args[1] != "-" {
			if in, err = os.Open(args[1]); err != nil {
				return usagef("%w", err)
			}
			defer in.Close()
		}
		contents, err := io.ReadAll(io.LimitReader(in, mostContents+1))
		switch {
		case err != nil:
			return usagef("%w", err)
		case len(contents) > mostContents:
			return usagef("the contents are too long: at most %d bytes are allowed", mostContents)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openWithin) // reading may have taken long
		defer cancel()
		n, err := c.Put(ctx, c.in(args[0]), contents, nil, want)
		if err != nil || a.output == "json" {
			return a.printNode(c, n, err)
		}
		a.hint(fmt.Sprintf("%s has generation %d", display.Escape(args[0]), n.ContentGeneration))
		return nil
	})
}

// watchKinds are the words for events. The cell tells reread whether it is wanted or not.
var watchKinds = map[cell.EventKind]string{
	cell.ContentsChanged: "contents", cell.Added: "added", cell.Removed: "removed",
	cell.ChildAdded: "child-added", cell.ChildRemoved: "child-removed", cell.ChildChanged: "child-changed",
	cell.LockAcquired: "lock-acquired", cell.LockLost: "lock-lost", cell.LockWanted: "lock-wanted",
}

func (a *app) filesWatchCommand() *cobra.Command {
	return a.ofCell(cobra.Command{
		Use: "watch PATH", Short: "Print what happens to a file", Args: oneArgument("the path"),
		Long: `Print what happens to a file, to those right below it and to the lock of the same name, as it
happens, until Ctrl-C. The file need not be there. "reread" says that the watch has begun, or that
events may be missing: read the file then. The other words are contents, added, removed,
child-added, child-removed, child-changed, lock-acquired, lock-lost and lock-wanted.`,
		Example: `  holdfast files watch app | grep '^child-'`,
	}, func(ctx context.Context, c *cellStore, args []string) error {
		s, err := c.Open(ctx, cell.SessionOptions{Note: "holdfast files watch"})
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer s.Close(context.WithoutCancel(ctx))
		for e, err := range s.Watch(ctx, c.in(args[0]), slices.Collect(maps.Keys(watchKinds))...) {
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				err = a.printEvent(c, e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) printEvent(c *cellStore, e *cell.Event) error {
	e.Path, e.Child = c.out(e.Path), c.out(e.Child)
	kind := cmp.Or(watchKinds[e.Kind], "reread")
	if a.output == "json" {
		return printJSON(struct {
			*cell.Event
			Kind string `json:"kind"`
		}{e, kind})
	}
	line := kind + " " + display.Escape(cmp.Or(e.Child, e.Path))
	if e.Child == "" && e.Token != 0 {
		line += fmt.Sprintf(" token %d", e.Token)
	}
	if e.ContentGeneration != 0 {
		line += fmt.Sprintf(" generation %d", e.ContentGeneration)
	}
	_, err := fmt.Println(line)
	return err
}

// rights are what lists are for.
var rights = []struct {
	name, allows string
	list         func(*cell.ACL) *string
}{
	{"read", "read", func(a *cell.ACL) *string { return &a.Read }},
	{"write", "write and lock", func(a *cell.ACL) *string { return &a.Write }},
	{"change", "change these rights", func(a *cell.ACL) *string { return &a.Change }},
}

func (a *app) filesACLCommand() (cmd *cobra.Command) {
	cmd = a.aimed(cobra.Command{
		Use: "acl PATH", Short: "Show or change who may do what with a file", Args: oneArgument("the path"),
		Long: `Show who may do what with a file and the lock of its name, or change it. The list NAME is the file
acl/NAME, whose lines are principals. An empty name lets everybody whom the cell's list of
principals lets. Files that are made below a file have the rights that it has then.`,
		Example: `  printf 'alice\nbob\n' | holdfast files put acl/team
  holdfast files acl app --read '' --write team --change team`,
	}, func(ctx context.Context, c *cellStore, args []string, want cell.If) error {
		n, err := c.Stat(ctx, c.in(args[0]))
		if err != nil {
			return err
		}
		changes := false
		for _, right := range rights {
			if flag, list := cmd.Flags().Lookup(right.name), right.list(n.Acl); flag.Changed && *list != flag.Value.String() {
				*list, changes = flag.Value.String(), true
			}
		}
		if changes {
			if want.Generation == nil {
				want.Generation = &n.AclGeneration
			}
			if n, err = c.SetACL(ctx, n.Path, n.Acl, want); err != nil {
				return err
			}
		}
		if a.output == "json" {
			return a.printNode(c, n, nil)
		}
		l := a.list("RIGHT", "LIST")
		for _, right := range rights {
			l.add(nil, right.name, cmp.Or(*right.list(n.Acl), "(everybody)"))
		}
		return l.print("")
	})
	for _, right := range rights {
		cmd.Flags().String(right.name, "", "the `list` of those who may "+right.allows)
	}
	return cmd
}
