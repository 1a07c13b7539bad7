package repocheck

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	report(t, "every package has a comment that begins with `Package` and its name",
		undocumentedPackages(theRepo(t).gofiles))
}

// undocumentedPackages finds packages without a package comment. A comment in a test file counts
// only if the package has no other files, because go doc does not show it.
func undocumentedPackages(files []*gofile) (found []string) {
	type pkg struct{ hasCode, code, test bool }
	pkgs := map[string]pkg{}
	for _, f := range files {
		p := pkgs[f.dir]
		documented := strings.TrimSpace(f.ast.Doc.Text()) != ""
		if name := f.ast.Name.Name; name != "main" {
			documented = strings.HasPrefix(f.ast.Doc.Text(),
				"Package "+strings.TrimSuffix(name, "_test")+" ")
		}
		if f.isTest() {
			p.test = p.test || documented
		} else {
			p.hasCode, p.code = true, p.code || documented
		}
		pkgs[f.dir] = p
	}
	for _, dir := range slices.Sorted(maps.Keys(pkgs)) {
		if p := pkgs[dir]; !p.code && (p.hasCode || !p.test) {
			found = append(found, dir)
		}
	}
	return found
}

func TestUndocumentedPackages(t *testing.T) {
	expect(t, undocumentedPackages([]*gofile{
		mustParse(t, "good/doc.go", "// Package good is good.\npackage good"),
		mustParse(t, "good/more.go", "package good"),
		mustParse(t, "cmd/good/main.go", "// Good does good.\npackage main"),
		mustParse(t, "onlytests/x_test.go", "// Package onlytests tests.\npackage onlytests_test"),
		mustParse(t, "bad/none.go", "package bad"),
		mustParse(t, "bad/none_test.go", "// Package bad is described in a test.\npackage bad"),
		mustParse(t, "badcmd/main.go", "package main"),
		mustParse(t, "badname/doc.go", "// Package goodname was renamed.\npackage badname"),
		mustParse(t, "badtests/x_test.go", "package badtests"),
	}), "bad", "badcmd", "badname", "badtests")
}

func TestEveryExportedNameHasAComment(t *testing.T) {
	var found []string
	for _, f := range theRepo(t).gofiles {
		if !f.isTest() && !ast.IsGenerated(f.ast) && f.ast.Name.Name != "main" && !strings.Contains("/"+f.dir+"/", "/internal/") {
			found = append(found, undocumentedNames(f)...)
		}
	}
	report(t, "every exported name has a doc comment", found)
}

// undocumentedNames finds exported functions, types, constants and variables,
// and methods of exported types, that have no comment. In a group the comment of
// the group, or one at the end of the line, is enough.
func undocumentedNames(f *gofile) (found []string) {
	missing := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if doc.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			found = append(found, f.at(name)+": "+name.Name)
		}
	}
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				missing(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					missing(s.Name, d.Doc, s.Doc, s.Comment)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						missing(name, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	return found
}

// receiver returns the name of the type that a method belongs to.
func receiver(method *ast.FuncDecl) string {
	var name string
	ast.Inspect(method.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name // the first: the type, not its type parameters
		}
		return name == ""
	})
	return name
}

func TestUndocumentedNames(t *testing.T) {
	f := mustParse(t, "x/x.go", `package x

// Good is documented.
func Good() {}
func hidden() {}
func BadFunc() {}

// T is documented.
type T[P any] struct{}
func (*T[P]) BadMethod() {}
// Good is documented.
func (T[P]) Good() {}
type hiddenType struct{}
func (hiddenType) Exported() {}
type BadType int

// The group has a comment.
const (
	A = iota
	B
)
const (
	C = iota // C has one at the end of its line.
	BadConst
)
var BadVar, hiddenVar int
//go:generate true
var BadDirective int
`)
	expect(t, undocumentedNames(f), "x.go:6: BadFunc", "BadMethod", "BadType", "BadConst", "BadVar",
		"BadDirective")
}
