package repocheck

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// repo is the repository's content. All names are relative to its root, with
// slashes.
type repo struct {
	texts   map[string]string // of every file; "" of what is no text
	gofiles []*gofile
	modules []string // directories that have a go.mod; the root's is "."
}

// gofile is one Go file, parsed with its comments.
type gofile struct {
	name string
	dir  string
	src  string
	fset *token.FileSet
	ast  *ast.File
}

func (f *gofile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// inGate reports whether a file is a test of the gate.
func (f *gofile) inGate() bool {
	line, _, _ := strings.Cut(f.src, "\n")
	return f.isTest() && !(strings.HasPrefix(line, "//go:build ") && strings.Contains(line, "soak"))
}

// at says where in the file a node is.
func (f *gofile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line)
}

// module returns the directory of the module that a directory belongs to.
func (r *repo) module(dir string) string {
	best := "."
	for _, m := range r.modules {
		if m != "." && (dir == m || strings.HasPrefix(dir, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}

// load reads the repository, once for all tests.
var load = sync.OnceValues(func() (*repo, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	names, err := list(root)
	if err != nil {
		return nil, err
	}
	r := &repo{texts: map[string]string{}}
	for _, name := range names {
		if err := r.add(root, name); err != nil {
			return nil, err
		}
	}
	return r, nil
})

// findRoot returns the closest directory above that has a go.work.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.work in any directory above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// list returns the names of all files but those that git ignores. It walks the directories
// itself and asks git only which files to keep: go test repeats a cached result until a file or
// directory changes that the test opened, and does not know which git opens.
func list(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".git": // a directory, or in a linked worktree a file
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type().IsRegular():
			name, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	git := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := git.Output()
	if err != nil || len(out) == 0 { // no git, or an export without history
		return names, nil
	}
	known := map[string]bool{}
	for name := range strings.SplitSeq(string(out), "\x00") {
		known[name] = true
	}
	var kept []string
	for _, name := range names {
		if known[name] {
			kept = append(kept, name)
		}
	}
	return kept, nil
}

func (r *repo) add(root, name string) error {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		r.texts[name] = "" // not text
		return nil
	}
	r.texts[name] = string(data)
	if path.Base(name) == "go.mod" {
		r.modules = append(r.modules, path.Dir(name))
	}
	if path.Ext(name) == ".go" && !strings.Contains("/"+name, "/testdata/") {
		f, err := parse(name, string(data))
		if err != nil {
			return err
		}
		r.gofiles = append(r.gofiles, f)
	}
	return nil
}

func parse(name, src string) (*gofile, error) {
	f := &gofile{name: name, dir: path.Dir(name), src: src, fset: token.NewFileSet()}
	var err error
	f.ast, err = parser.ParseFile(f.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}

// theRepo returns the repository. It fails the test if the repository cannot be read, or is so
// small that no rule could be broken.
func theRepo(t *testing.T) *repo {
	t.Helper()
	r, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.gofiles) < 10 || len(r.modules) < 2 || r.texts["go.mod"] == "" {
		t.Fatalf("found %d Go files in modules %v: this is not the repository", len(r.gofiles), r.modules)
	}
	return r
}

// report fails the test if a rule is broken, with each place that breaks it.
func report(t *testing.T, rule string, found []string) {
	t.Helper()
	if len(found) > 0 {
		t.Errorf("%s:\n\t%s", rule, strings.Join(found, "\n\t"))
	}
}

// mustParse returns a file for the test of a rule.
func mustParse(t *testing.T, name, src string) *gofile {
	t.Helper()
	f, err := parse(name, src)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// expect compares the findings of a rule, in order, with a part of each.
func expect(t *testing.T, found []string, parts ...string) {
	t.Helper()
	ok := len(found) == len(parts)
	for i := 0; ok && i < len(parts); i++ {
		ok = strings.Contains(found[i], parts[i])
	}
	if !ok {
		t.Errorf("the rule found\n\t%s\nwant\n\t%s", strings.Join(found, "\n\t"),
			strings.Join(parts, "\n\t"))
	}
}
