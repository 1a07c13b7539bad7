package repocheck

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the path of the root module.
const modulePath = "github.com/holdfastlock/holdfast"

// toolsModule pins programs. It is not in go.work, so that their dependencies do not move the
// versions that the library is tested with.
const toolsModule = "internal/test/tools"

func TestRootModuleImportsStandardLibraryOnly(t *testing.T) {
	r := theRepo(t)
	var found []string
	for _, f := range r.gofiles {
		if r.module(f.dir) == "." {
			found = append(found, foreignImports(r, f)...)
		}
	}
	report(t, "the root module, its tests included, imports the standard library and itself only", found)
}

// foreignImports finds imports of other modules, ours among them, and of cgo.
func foreignImports(r *repo, f *gofile) (found []string) {
	for _, spec := range f.ast.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			imported = spec.Path.Value
		}
		first, _, _ := strings.Cut(imported, "/")
		switch {
		case imported == modulePath:
			continue
		case strings.HasPrefix(imported, modulePath+"/"):
			if r.module(strings.TrimPrefix(imported, modulePath+"/")) == "." {
				continue
			}
		case !strings.Contains(first, ".") && imported != "C":
			continue // only paths of the standard library have no dot there
		}
		found = append(found, f.at(spec)+": "+imported)
	}
	return found
}

func TestForeignImports(t *testing.T) {
	r := &repo{modules: []string{".", "redislock/rueidisconn"}}
	f := mustParse(t, "redislock/x.go", `package redislock
		import (
			"C"
			"net/http"
			_ "github.com/holdfastlock/holdfast"
			_ "github.com/holdfastlock/holdfast/driver"
			_ "github.com/holdfastlock/holdfast/redislock/rueidisconn"
			_ "github.com/holdfastlock/holdfast/redislock/rueidisconn/inner"
			_ "github.com/holdfastlock/holdfastly"
			_ "golang.org/x/sync/errgroup"
		)`)
	expect(t, foreignImports(r, f), "x.go:3: C", "x.go:7: ", "x.go:8: ", "holdfastly", "errgroup")
}

func TestEveryModuleIsInTheWorkspace(t *testing.T) {
	r := theRepo(t)
	report(t, "every module but that of the tools is in go.work, so that it is tested", outside(r))
}

// outside finds modules that go.work does not use.
func outside(r *repo) (found []string) {
	var used []string
	for _, word := range strings.Fields(r.texts["go.work"]) {
		if strings.HasPrefix(word, ".") {
			used = append(used, path.Clean(word))
		}
	}
	for _, m := range r.modules {
		if m != toolsModule && !slices.Contains(used, m) {
			found = append(found, m)
		}
	}
	return found
}

func TestOutside(t *testing.T) {
	r := &repo{
		modules: []string{".", "bench", "internal/test/tools", "zklock"},
		texts:   map[string]string{"go.work": "go 1.26\n\nuse (\n\t.\n\t./bench\n)\n"},
	}
	expect(t, outside(r), "zklock")
}
