package repocheck

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// strays matches paths of one machine and hosts of package registries. It is made of pieces so
// that this file does not break its own rule. Only the beginning of a path counts: net/work/x
// does not match.
var strays = regexp.MustCompile(`(?:^|[^\w.~})/-]|//)/(?:work|root)/` +
	`|proxy\.golang` + `\.org|deb\.debian` + `\.org|registry\.npm` + `js|repo1\.mav` + `en`)

func TestNoMachineNames(t *testing.T) {
	texts := theRepo(t).texts
	var found []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		found = append(found, machineNames(name, texts[name])...)
	}
	report(t, "no file names a path of one machine or the host of a package registry", found)
}

// machineNames finds lines that name a path of one machine or the host of a registry.
func machineNames(name, text string) (found []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if match := strays.FindString(line); match != "" {
			found = append(found, fmt.Sprintf("%s:%d: %s", name, number, match))
		}
	}
	return found
}

func TestMachineNames(t *testing.T) {
	bad := []string{
		"/wo" + "rk/main", "cd /wo" + "rk/x", "file:///ro" + "ot/x", `"/ro` + `ot/.cache"`,
		"https://proxy.golang" + ".org/x", "deb.debian" + ".org", "registry.npm" + "js.org", "repo1.mav" + "en.org",
	}
	expect(t, machineNames("a.md", strings.Join(bad, "\n")),
		"a.md:1: ", "a.md:2: ", "a.md:3: ", "a.md:4: ", "a.md:5: ", "a.md:6: ", "a.md:7: ", "a.md:8: ")
	expect(t, machineNames("a.md", "net/work/x ~/work/x $HOME/work/x ./root/x ${dir}/work/x framework/root"))
}

// TestLicenceLines: what is copied by itself says its licence. JSON has no comments.
func TestLicenceLines(t *testing.T) {
	alone := regexp.MustCompile(`^(scripts|packaging|\.ci|\.github|docs/cell-clients)/`)
	var found []string
	for name, text := range theRepo(t).texts {
		if alone.MatchString(name) && path.Ext(name) != ".json" && !strings.Contains(text, "SPDX-License-Identifier: Apache-2.0\n") {
			found = append(found, name)
		}
	}
	report(t, "scripts, packaging, workflows and the clients of the cell have a line SPDX-License-Identifier", found)
}

// skipper is the only package that may skip tests, because it reads HOLDFAST_REQUIRE.
const skipper = "internal/test/testserver"

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
