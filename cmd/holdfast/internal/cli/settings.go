package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settingsHelp is for the help texts of commands that run for long.
const settingsHelp = `Each flag may also stand in the environment, as HOLDFAST_SERVE_ and its name in capitals with _
for -, or in the file that --config names, one to a line: listen = 10.0.0.1:7433. In the environment
several values are separated by commas; in the file each has a line of its own. A flag is stronger
than the environment, and that is stronger than the file.`

// mostSettings is how large a file of settings may be, in bytes.
const mostSettings = 1 << 20

// fillIn gives flags that were not given the values that the environment and a file have for them.
func fillIn(cmd *cobra.Command, file string) error {
	flags := cmd.LocalNonPersistentFlags()
	given := map[string]bool{}
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "HOLDFAST_SERVE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := os.LookupEnv(name)
		if given[f.Name] = f.Changed; f.Changed || !ok {
			return
		}
		given[f.Name] = true
		values := []string{text}
		if _, several := f.Value.(pflag.SliceValue); several {
			values = strings.Split(text, ",")
		}
		for _, v := range values {
			if failed := flags.Set(f.Name, v); failed != nil {
				err = errors.Join(err, usagef("%s: %w", name, failed))
			}
		}
	})
	if err != nil || file == "" {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return usagef("--config: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, mostSettings))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if flags.Lookup(name) == nil || name == "config" || !ok {
			return usagef("%s:%d: %.80q is no setting: the flags of this command are, as name = value", file, n, line)
		}
		if given[name] {
			continue
		}
		if err := flags.Set(name, strings.TrimSpace(value)); err != nil {
			return usagef("%s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return usagef("%s: %w", file, err)
	}
	return nil
}

// settingsFlag adds --config to a command, and sees to it that flags are filled in before it runs.
func settingsFlag(cmd *cobra.Command) {
	var file string
	cmd.Flags().StringVar(&file, "config", os.Getenv("HOLDFAST_SERVE_CONFIG"), "`file` with settings")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return fillIn(cmd, file) }
}
