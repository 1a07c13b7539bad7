package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
)

func (a *app) filesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "files",
		Short: "Read and write the small files of a cell",
		Long: `Read and write the small files of a cell, the lock service that 'holdfast serve' runs: settings,
the address of a leader, a list of members. Each is read and written as a whole, and has at most
256 KiB. Each has numbers that only grow: its instance, and the generations of its contents and of
its rights.

The store must be a cell: --store cell://HOST:PORT, or HOLDFAST_STORE.`,
	}
	return withExitCodes(cmd, a.filesLsCommand(), a.filesGetCommand(), a.filesPutCommand(), a.filesRmCommand(),
		a.filesWatchCommand(), a.filesACLCommand())
}

func (a *app) filesLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PATH]",
		Short: "List the files below a path",
		Long:  `List what is right below a path, or at the top. A name with a slash at its end has files below it.`,
		Example: `  holdfast files ls
  holdfast files ls app -o json | jq -r .path`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.inCell(func(ctx context.Context, c *cellStore, args []string) error {
			path := strings.TrimSuffix(c.in(strings.Join(args, "")), "/")
			l := a.list("PATH", "SIZE", "GENERATION", "SESSION")
			for n, err := range c.ReadDir(ctx, path) {
				if err != nil {
					return cellError(err)
				}
				n.Path = c.out(n.Path)
				row := []string{n.Path}
				if n.HasChildren {
					row[0] += "/"
				}
				if n.Instance != 0 {
					row = append(row, fmt.Sprint(n.Size), fmt.Sprint(n.ContentGeneration), n.Session)
				}
				if err := l.add(n, row...); err != nil {
					return err
				}
			}
			return l.print("there are no files")
		}),
	}
}

func (a *app) filesGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get PATH",
		Short: "Print a file",
		Long: `Print the contents of a file as they are. With -o json print what is known of the file instead, and
no contents.`,
		Example: `  holdfast files get app/config`,
		Args:    oneArgument("the path"),
		RunE: a.inCell(func(ctx context.Context, c *cellStore, args []string) error {
			n, contents, err := c.Get(ctx, c.in(args[0]))
			if err != nil {
				return cellError(err)
			}
			if n.Path = args[0]; a.output == "json" {
				return printJSON(n)
			}
			_, err = os.Stdout.Write(contents)
			return err
		}),
	}
}

// ifFlags are the flags that say which file a command means.
type ifFlags struct {
	generation int64
	instance   int64
}

func (f *ifFlags) add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.generation, "if-generation", -1, "only if the file is of this `generation`")
	cmd.Flags().Int64Var(&f.instance, "instance", 0, "only if the file has this `number`")
}

func (f *ifFlags) want() (cell.If, error) {
	want := cell.If{Instance: f.instance}
	if f.generation != -1 {
		want.Generation = &f.generation
	}
	if f.generation < -1 || f.instance < 0 {
		return want, usagef("generations and instances are not negative")
	}
	return want, nil
}

// mostContents is how large a file may be, in bytes.
const mostContents = 256 << 10

func (a *app) filesPutCommand() *cobra.Command {
	var f ifFlags
	cmd := &cobra.Command{
		Use:   "put PATH [FILE]",
		Short: "Write a file",
		Long: `Write a file of the cell with the contents of FILE, or of the standard input. It is made if it is
not there. With --if-generation it is written only if nobody else has written it since it was read;
with --if-generation 0 only if it is not there.`,
		Example: `  echo 10.0.0.7:8080 | holdfast files put app/leader
  holdfast files put app/config config.json --if-generation 4711`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := f.want()
			if err != nil {
				return err
			}
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
			return a.withCell(cmd.Context(), func(ctx context.Context, c *cellStore) error {
				n, err := c.Put(ctx, c.in(args[0]), contents, nil, want)
				if err != nil {
					return cellError(err)
				}
				if n.Path = args[0]; a.output == "json" {
					return printJSON(n)
				}
				a.hint(fmt.Sprintf("%s has generation %d", escape(args[0]), n.ContentGeneration))
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) filesRmCommand() *cobra.Command {
	var f ifFlags
	cmd := &cobra.Command{
		Use:   "rm PATH",
		Short: "Remove a file",
		Long:  `Remove a file that has no files below it.`,
		Args:  oneArgument("the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := f.want()
			if err != nil {
				return err
			}
			return a.withCell(cmd.Context(), func(ctx context.Context, c *cellStore) error {
				return cellError(c.Delete(ctx, c.in(args[0]), want))
			})
		},
	}
	f.add(cmd)
	return cmd
}

// watchKinds are the words for events.
var watchKinds = map[string]cell.EventKind{
	"contents": cell.ContentsChanged, "added": cell.Added, "removed": cell.Removed,
	"child-added": cell.ChildAdded, "child-removed": cell.ChildRemoved, "child-changed": cell.ChildChanged,
	"lock-acquired": cell.LockAcquired, "lock-lost": cell.LockLost, "lock-wanted": cell.LockWanted,
	"reread": cell.Reread,
}

func kindWord(k cell.EventKind) string {
	for word, kind := range watchKinds {
		if kind == k {
			return word
		}
	}
	return "unknown"
}

func (a *app) filesWatchCommand() *cobra.Command {
	var words []string
	cmd := &cobra.Command{
		Use:   "watch PATH",
		Short: "Print what happens to a file",
		Long: `Print what happens to a file, to those right below it and to the lock of the same name, as it
happens, until Ctrl-C. The file need not be there. "reread" says that the watch has begun, or that
events may be missing: read the file then.`,
		Example: `  holdfast files watch app --on child-added,child-removed`,
		Args:    oneArgument("the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds, err := parseKinds(words)
			if err != nil {
				return err
			}
			return a.watchFile(cmd.Context(), args[0], kinds)
		},
	}
	cmd.Flags().StringSliceVar(&words, "on", nil, "which `events` to print, separated by commas (default: all): contents, added, "+
		"removed, child-added, child-removed, child-changed, lock-acquired, lock-lost, lock-wanted")
	return cmd
}

func parseKinds(words []string) ([]cell.EventKind, error) {
	var kinds []cell.EventKind
	for _, word := range words {
		kind, ok := watchKinds[word]
		if !ok || kind == cell.Reread {
			return nil, usagef("--on: %q is no event: see --help", word)
		}
		kinds = append(kinds, kind)
	}
	if kinds == nil {
		for _, kind := range watchKinds {
			if kind != cell.Reread {
				kinds = append(kinds, kind)
			}
		}
		slices.Sort(kinds)
	}
	return kinds, nil
}

func (a *app) watchFile(ctx context.Context, path string, kinds []cell.EventKind) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := a.openCell()
	if err != nil {
		return err
	}
	defer c.Close()
	opening, cancel := context.WithTimeout(ctx, openWithin)
	s, err := c.Open(opening, cell.SessionOptions{Note: "holdfast files watch"})
	cancel()
	if err != nil {
		return cellError(err)
	}
	defer s.Close(context.WithoutCancel(ctx))
	for e, err := range s.Watch(ctx, c.in(path), kinds...) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return cellError(err)
		}
		if err := a.printEvent(c, e); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printEvent(c *cellStore, e cell.Event) error {
	e.Path, e.Child = c.out(e.Path), c.out(e.Child)
	kind := kindWord(e.Kind)
	if a.output == "json" {
		return printJSON(struct {
			cell.Event
			Kind string `json:"kind"`
		}{e, kind})
	}
	line := kind + " " + escape(cmp.Or(e.Child, e.Path))
	if e.Child == "" && e.Token != 0 {
		line += fmt.Sprintf(" token %d", e.Token)
	}
	if e.ContentGeneration != 0 {
		line += fmt.Sprintf(" generation %d", e.ContentGeneration)
	}
	_, err := fmt.Println(line)
	return err
}

func (a *app) filesACLCommand() *cobra.Command {
	var f ifFlags
	cmd := &cobra.Command{
		Use:   "acl PATH",
		Short: "Show or change who may do what with a file",
		Long: `Show who may do what with a file and the lock of its name, or change it. The list NAME is the file
acl/NAME, whose lines are principals. An empty name lets everybody whom the cell's list of
principals lets. Files that are made below a file have the rights that it has then.`,
		Example: `  printf 'alice\nbob\n' | holdfast files put acl/team
  holdfast files acl app --read '' --write team --change team`,
		Args: oneArgument("the path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := f.want()
			if err != nil {
				return err
			}
			return a.withCell(cmd.Context(), func(ctx context.Context, c *cellStore) error {
				n, err := c.Stat(ctx, c.in(args[0]))
				if err != nil {
					return cellError(err)
				}
				changed := n.ACL
				for name, to := range map[string]*string{"read": &changed.Read, "write": &changed.Write, "change": &changed.Change} {
					if flag := cmd.Flags().Lookup(name); flag.Changed {
						*to = flag.Value.String()
					}
				}
				if changed != n.ACL {
					if want.Generation == nil {
						want.Generation = &n.ACLGeneration
					}
					if n, err = c.SetACL(ctx, c.in(args[0]), changed, want); err != nil {
						return cellError(err)
					}
				}
				if n.Path = args[0]; a.output == "json" {
					return printJSON(n)
				}
				l := a.list("RIGHT", "LIST")
				for _, right := range [][2]string{{"read", n.ACL.Read}, {"write", n.ACL.Write}, {"change", n.ACL.Change}} {
					l.add(nil, right[0], cmp.Or(right[1], "(everybody)"))
				}
				return l.print("")
			})
		},
	}
	cmd.Flags().String("read", "", "the `list` of those who may read")
	cmd.Flags().String("write", "", "the `list` of those who may write and lock")
	cmd.Flags().String("change", "", "the `list` of those who may change these rights")
	f.add(cmd)
	return cmd
}
