//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/driver"
)

// unset removes a variable from the environment.
func (w *world) unset(name string) {
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// TestHelpOfAll: the help of every command fits a hundred columns, and names one default for a flag.
func TestHelpOfAll(t *testing.T) {
	w := newWorld(t)
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) {2,}`)
	defaults := regexp.MustCompile(`(?s)\(default[^)]*\)\s*\(default`)
	var check func(path ...string)
	check = func(path ...string) {
		help := w.run(0, append(path, "--help")...).out.String()
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%v has a line of %d characters: %s", path, n, line)
			}
		}
		if found := defaults.FindString(help); found != "" {
			t.Errorf("%v has two defaults: %s", path, found)
		}
		_, list, _ := strings.Cut(help, "Available Commands:")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, c := range commands.FindAllStringSubmatch(list, -1) {
			if c[1] != "help" {
				check(append(slices.Clone(path), c[1])...)
			}
		}
	}
	check()
}

// TestQuiet: who does not get the lock says nothing with -q, or with -E 0, so that cron sends no mail.
func TestQuiet(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	for _, c := range []struct {
		code  int
		flags []string
	}{
		{0, []string{"-n", "-E", "0"}},
		{0, []string{"-w", "10ms", "-E", "0"}},
		{75, []string{"-q", "-n"}},
		{3, []string{"--quiet", "-n", "-E", "3"}},
	} {
		p := w.run(c.code, append(append([]string{"run"}, c.flags...), "x", "--", "touch", w.path("ran"))...)
		if text := p.out.String() + p.err.String(); text != "" {
			t.Errorf("%v wrote %q", c.flags, text)
		}
	}
	w.run(75, "run", "-n", "x", "--", "true").expectErr(`lock "x" is held by `)
	w.run(127, "run", "-q", "-n", "x", "--", "no-such-command").expectErr("was not found") // an error all the same
	if p := w.run(0, "ls", "-q", "nothing"); p.out.String()+p.err.String() != "" {
		t.Errorf("ls -q wrote %q", p.err.String())
	}
}

// TestBreakOfAnother: a break with another token says who holds the name under which.
func TestBreakOfAnother(t *testing.T) {
	w := newWorld(t)
	w.run(1, "break", "x", "--token", "5").expectErr(`nothing was broken: nobody holds "x"`)
	p := w.start("run", "--note", "the \x1bvictim", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; sleep 1000")
	p.awaitOutput("\n")
	token := strings.TrimSpace(p.out.String())
	broken := w.run(1, "break", "x", "--token", "5")
	broken.expectErr(`no hold on "x" has the token 5: "the \x1bvictim" has held it for `)
	broken.expectErr("with token " + token)
}

// TestEmptyStoreVariable: a variable that is empty is not taken for none. A host whose setting is missing
// would use locks of its own.
func TestEmptyStoreVariable(t *testing.T) {
	w := newWorld(t)
	w.unset("HOLDFAST_STORE")
	w.env = append(w.env, "HOLDFAST_STORE=")
	for _, args := range [][]string{{"ls"}, {"run", "x", "--", "touch", w.path("ran")}, {"doctor"}, {"demo"}} {
		w.run(64, args...).expectErr("HOLDFAST_STORE is set, but empty")
	}
	w.run(0, "--store", "file://"+w.locks, "run", "x", "--", "true")
}

// TestNoDoubleEscapes: what an error quotes is escaped once.
func TestNoDoubleEscapes(t *testing.T) {
	w := newWorld(t)
	w.run(127, "run", "x", "--", "no\x1b\u202esuch").expectErr(`command "no\x1b\u202esuch" was not found`)
	w.run(64, "a\\b").expectErr(`unknown command "a\\b"`)
}

// TestSchemesHaveTheirPackages: the package that driver.Open tells others to import for a scheme is the
// one that registers it.
func TestSchemesHaveTheirPackages(t *testing.T) {
	text, err := os.ReadFile("../../internal/storeurl/scheme.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range driver.Schemes() {
		if scheme == "cut" || scheme == "late" { // of these tests
			continue
		}
		row := regexp.MustCompile(`"` + regexp.QuoteMeta(scheme) + `": +"([a-z/]+)"`).FindSubmatch(text)
		if row == nil {
			t.Errorf("driver.Open does not know the package of %s://", scheme)
			continue
		}
		files, err := filepath.Glob(filepath.Join("../..", string(row[1]), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(source), `"`+scheme+`"`) && strings.Contains(string(source), "driver.Register(")
		}) {
			t.Errorf("package %s does not register %s://", row[1], scheme)
		}
	}
}
