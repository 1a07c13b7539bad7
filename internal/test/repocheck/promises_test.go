package repocheck

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// promisesPage is the page with the table of promises and the places that keep them.
const promisesPage = "docs/design.md"

// promisesHeading is the heading of the table's section, with or without a number before it.
const promisesHeading = "Promises and where they are kept"

// promiseCount is how many promises docs/design.md makes: P1 to P11.
const promiseCount = 11

func TestPromisesAreKeptWhereThePageSays(t *testing.T) {
	r := theRepo(t)
	report(t,
		promisesPage+": the table says for each promise which place keeps it and which test finds it broken",
		wrongPromises(r, promisesPage, promiseCount))
}

// wrongPromises checks the table of promises of a page against the code. These are the
// rules:
//
//   - The page has one heading [promisesHeading], and below it one table, whose header is
//     "promise | kept by | tested by". A row that begins with "|" belongs to the table.
//   - The first cell of a row begins with the promise's number: "P7", or "P7: no lost
//     wake-up". P1 to Pn have one row each, in this order.
//   - The second and the third cell have one code span or more; what stands between the
//     spans is for readers. A span is a path from the root of the repository, a colon, and
//     what is declared there: `internal/record/record.go: Record.Settle`.
//   - The path is a Go file, or a directory, which stands for its Go files. A file that is
//     not Go, such as a Lua script, has nothing after it.
//   - Kept by: a function, a method as Type.Method, a type, a constant or a variable. The
//     file is no test.
//   - Tested by: a function in a test file of the gate whose name begins with Test, Fuzz or
//     Example, or the cases of a theme of the conformance suite: `drivertest: tokensCases`.
func wrongPromises(r *repo, page string, n int) (found []string) {
	rows, err := promiseRows(r.texts[page])
	if err != nil {
		return []string{page + ": " + err.Error()}
	}
	for i, row := range rows {
		wrong := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("%s:%d: ", page, row.line)+fmt.Sprintf(format, args...))
		}
		if want := fmt.Sprintf("P%d", i+1); promiseNumber.FindString(row.cells[0]) != want {
			wrong("the row of %s is expected, not %q", want, row.cells[0])
		}
		for column, check := range map[int]func(*repo, string) string{1: wrongPlace, 2: wrongTest} {
			spans := codeSpan.FindAllStringSubmatch(row.cells[column], -1)
			if len(spans) == 0 {
				wrong("%q names nothing in a code span", row.cells[column])
			}
			for _, span := range spans {
				if problem := check(r, span[1]); problem != "" {
					wrong("`%s`: %s", span[1], problem)
				}
			}
		}
	}
	if len(rows) != n {
		found = append(found, fmt.Sprintf("%s: %d promises have a row, not %d", page, len(rows), n))
	}
	slices.Sort(found)
	return found
}

var (
	promiseNumber = regexp.MustCompile(`^P[0-9]+\b`)
	codeSpan      = regexp.MustCompile("`([^`]+)`")
	headerRow     = []string{"promise", "kept by", "tested by"}
	anyHeading    = regexp.MustCompile(`^#+ +(?:[0-9.]+ +)?(.*)$`)
	ruleRow       = regexp.MustCompile(`^[|: -]+$`)
)

// promiseRow is a row of the table.
type promiseRow struct {
	line  int
	cells []string
}

// promiseRows returns the rows below the header of the table in the section.
func promiseRows(text string) (rows []promiseRow, err error) {
	sections, inside, header := 0, false, false
	for i, line := range strings.Split(text, "\n") {
		if m := anyHeading.FindStringSubmatch(line); m != nil {
			if inside = strings.TrimSpace(m[1]) == promisesHeading; inside {
				sections++
			}
			continue
		}
		if line = strings.TrimSpace(line); !inside || !strings.HasPrefix(line, "|") || ruleRow.MatchString(line) {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		switch {
		case len(cells) != len(headerRow):
			return nil, fmt.Errorf("line %d has %d columns, not %d", i+1, len(cells), len(headerRow))
		case !header && !slices.Equal(cells, headerRow):
			return nil, fmt.Errorf("line %d: the header of the table is %q, not %q", i+1, cells, headerRow)
		case header:
			rows = append(rows, promiseRow{i + 1, cells})
		}
		header = true
	}
	if sections != 1 {
		return nil, fmt.Errorf("%d sections are called %q, not one", sections, promisesHeading)
	}
	return rows, nil
}

// wrongPlace says what is wrong with a code span of the column "kept by", or "".
func wrongPlace(r *repo, span string) string {
	place, name, named := strings.Cut(span, ": ")
	if _, isText := r.texts[place]; isText && path.Ext(place) != ".go" {
		if named {
			return "a file that is not Go has no declaration"
		}
		return ""
	}
	return notDeclared(r, place, name, func(f *gofile) bool { return !f.isTest() })
}

// wrongTest says what is wrong with a code span of the column "tested by", or "".
func wrongTest(r *repo, span string) string {
	place, name, _ := strings.Cut(span, ": ")
	switch {
	case testName.MatchString(name):
		return notDeclared(r, place, name, (*gofile).inGate)
	case strings.HasSuffix(name, "Cases") && strings.HasPrefix(place+"/", "drivertest/"):
		return notDeclared(r, place, name, func(f *gofile) bool { return !f.isTest() })
	}
	return "neither a test nor the cases of a theme of drivertest"
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)([A-Z_].*)?$`)

// notDeclared says why none of the files of a place declares a name, or "". The files that
// count are those that wanted reports true for.
func notDeclared(r *repo, place, name string, wanted func(*gofile) bool) string {
	if name == "" {
		return "nothing is named after the path"
	}
	exists := false
	for _, f := range r.gofiles {
		if (f.name == place || f.dir == place) && wanted(f) {
			exists = true
			if slices.Contains(declared(f), name) {
				return ""
			}
		}
	}
	if !exists {
		return "there is no such file"
	}
	return "nothing of this name is declared there"
}

// declared lists what a file declares at its top level, methods as Type.Method.
func declared(f *gofile) (names []string) {
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				names = append(names, receiver(d)+"."+d.Name.Name)
			} else {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
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

func TestWrongPromises(t *testing.T) {
	r := &repo{texts: map[string]string{"x/free.lua": "return 1"}}
	for name, src := range map[string]string{
		"x/x.go":               "package x\ntype T[P any] struct{}\nfunc (*T[P]) M() {}\nfunc F() {}\nconst C, D = 1, 2\nvar V int\n",
		"x/x_test.go":          "package x\nfunc TestF() {}\nfunc FuzzF() {}\nfunc ExampleF() {}\nfunc helper() {}\nfunc Testing() {}\nvar moreCases int\n",
		"x/soak_test.go":       "//go:build soak\n\npackage x\nfunc TestSoak() {}\n",
		"drivertest/tokens.go": "package drivertest\nvar tokensCases int\n",
	} {
		r.gofiles = append(r.gofiles, mustParse(t, name, src))
	}
	const top = "# 1. Other\n| P9 | not ours |\n## 10. Promises and where they are kept\n\nText.\n\n| promise | kept by | tested by |\n|---|:-:|---|\n"
	const good = "| P1: one | `x/x.go: T.M` and `x: V` | `x/x_test.go: TestF`, `drivertest: tokensCases` |\n" +
		"| P2 | `x/x.go: D`, `x/free.lua` | `x: FuzzF`, `drivertest/tokens.go: tokensCases`, `x: ExampleF` |\n"
	row := func(kept, tested string) string {
		return top + "| P1 | " + kept + " | " + tested + " |\n"
	}
	for name, c := range map[string]struct {
		text  string
		n     int
		parts []string
	}{
		"good":                      {top + good + "# Next\n| P3 | not | ours |\n", 2, nil},
		"no section":                {"# Promises\n" + good, 2, []string{"0 sections"}},
		"another header":            {"# Promises and where they are kept\n| promise | tested by | kept by |\n" + good, 2, []string{"the header"}},
		"a column too many":         {top + good + "| P3 | `x: F` | `x: TestF` | more |\n", 3, []string{"line 11 has 4 columns"}},
		"a promise is missing":      {top + good, 3, []string{"2 promises have a row, not 3"}},
		"a promise is there twice":  {top + good + "| P2 | `x: F` | `x: TestF` |\n", 3, []string{":11: the row of P3"}},
		"nothing keeps it":          {row("the engine", "`x: TestF`"), 1, []string{`"the engine" names nothing`}},
		"no such file":              {row("`x/y.go: F`", "`x: TestF`"), 1, []string{"`x/y.go: F`: there is no such file"}},
		"a method without its type": {row("`x/x.go: M`", "`x: TestF`"), 1, []string{"nothing of this name"}},
		"a script with a name":      {row("`x/free.lua: F`", "`x: TestF`"), 1, []string{"not Go has no declaration"}},
		"kept by a test":            {row("`x/x_test.go: TestF`", "`x: TestF`"), 1, []string{"there is no such file"}},
		"no such test":              {row("`x: F`", "`x: TestG`"), 1, []string{"`x: TestG`: nothing of this name"}},
		"a test of the soak":        {row("`x: F`", "`x: TestSoak`"), 1, []string{"`x: TestSoak`: nothing of this name"}},
		"no test but a function":    {row("`x: F`", "`x: helper`"), 1, []string{"neither a test nor"}},
		"a test without its path":   {row("`x: F`", "`TestF`"), 1, []string{"neither a test nor"}},
		"cases that are not there":  {row("`x: F`", "`drivertest: queueCases`"), 1, []string{"nothing of this name"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.texts["page.md"] = c.text
			expect(t, wrongPromises(r, "page.md", c.n), c.parts...)
		})
	}
}
