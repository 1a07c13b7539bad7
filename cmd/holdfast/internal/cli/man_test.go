package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestManPages: each command has a page with all its flags, and no line of a text is a request.
func TestManPages(t *testing.T) {
	root := newRoot()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		var page bytes.Buffer
		w := bufio.NewWriter(&page)
		writeMan(w, c)
		w.Flush()
		text := page.String()
		for _, section := range []string{".TH \"HOLDFAST", ".SH NAME\nholdfast", ".SH SYNOPSIS", ".SH DESCRIPTION"} {
			if !strings.Contains(text, section) {
				t.Errorf("%s: the page has no %q:\n%s", c.CommandPath(), section, text)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, roff("--"+f.Name)) {
				t.Errorf("%s: the page lacks --%s", c.CommandPath(), f.Name)
			}
		})
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "'") {
				t.Errorf("%s: the line is a request: %q", c.CommandPath(), line)
			}
		}
	}
	if got, want := roff(".a\n'b \\ -x…"), "\\&.a\n\\&'b \\e \\-x\\[u2026]"; got != want {
		t.Errorf("roff gives %q, want %q", got, want)
	}
}
