// Crosscheck checks that packages compile for other platforms, in seconds: it parses them and all
// that they import, and checks the types, but compiles nothing. A build of the command for one
// platform takes more than a minute of processor time, because its libraries are large.
//
//	crosscheck OS/ARCHITECTURE,… PACKAGE…
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/holdfastlock/holdfast"

func main() {
	failed := false
	for platform := range strings.SplitSeq(os.Args[1], ",") {
		os_, arch, _ := strings.Cut(platform, "/")
		if err := check(os_, arch, os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(goos, arch string, patterns []string) error {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax,
		Env:       append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0"),
		ParseFile: parse,
	}, patterns...)
	if err != nil {
		return err
	}
	bad, count := 0, 0
	packages.Visit(loaded, nil, func(p *packages.Package) {
		count++
		for _, err := range p.Errors {
			if err.Kind == packages.TypeError && !strings.HasPrefix(p.PkgPath, module) {
				continue // of a body that parse has left out
			}
			if bad++; bad <= 10 {
				fmt.Fprintf(os.Stderr, "%s/%s: %v\n", goos, arch, err)
			}
		}
	})
	switch {
	case bad > 0:
		return fmt.Errorf("%d errors", bad)
	case count < 100:
		return fmt.Errorf("only %d packages were found", count)
	}
	fmt.Printf("%s/%s: %d packages\n", goos, arch, count)
	return nil
}

// parse leaves out the functions' bodies of what is not ours: the libraries' own tests see to them.
func parse(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if file == nil || strings.HasPrefix(name, ours) {
		return file, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
	return file, err
}

// ours is the directory that the program is started in, the root of the repository.
var ours = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir + string(os.PathSeparator)
}()
