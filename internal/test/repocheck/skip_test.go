package repocheck

import (
	"go/ast"
	"slices"
	"testing"
)

// skipper is the only package that may skip tests, because it reads HOLDFAST_REQUIRE.
const skipper = "internal/testserver"

func TestOnlyTestserverSkips(t *testing.T) {
	var found []string
	for _, f := range theRepo(t).gofiles {
		if f.dir != skipper {
			found = append(found, skips(f)...)
		}
	}
	report(t, "tests are skipped by testserver.Need only, which HOLDFAST_REQUIRE can forbid", found)
}

// skips finds calls of methods named like those that skip a test, in files that
// import testing.
func skips(f *gofile) (found []string) {
	if !slices.ContainsFunc(f.ast.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing"` }) {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				found = append(found, f.at(sel.Sel)+": "+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestSkips(t *testing.T) {
	const body = `
func TestX(t *testing.T) {
	t.Skip("no")
	h.t.Skipf("no")
	t.Run("sub", func(t *testing.T) { t.SkipNow() })
	_ = filepath.SkipDir
}`
	expect(t, skips(mustParse(t, "x_test.go", "package x\nimport \"testing\""+body)),
		"x_test.go:4: Skip", "5: Skipf", "6: SkipNow")
	expect(t, skips(mustParse(t, "x.go", "package x\nimport \"encoding/json\""+body)))
}
