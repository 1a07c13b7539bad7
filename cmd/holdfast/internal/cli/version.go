package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// versionJSON is the program's version in JSON.
type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	v := version()
	if a.output == "json" {
		return printJSON(v)
	}
	text := "holdfast " + v.Version
	switch {
	case v.Modified:
		text += " (" + v.Revision + ", modified)"
	case v.Revision != "":
		text += " (" + v.Revision + ")"
	}
	_, err := fmt.Printf("%s %s %s\n", text, v.Go, v.Platform)
	return err
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("arguments are given, %q: none is needed", strings.Join(args, " "))
	}
	return nil
}

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
