//go:build linux

package docstest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/storeurl"

	_ "github.com/holdfastlock/holdfast/celllock"
	_ "github.com/holdfastlock/holdfast/etcdlock"
	_ "github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	_ "github.com/holdfastlock/holdfast/memlock"
	_ "github.com/holdfastlock/holdfast/redislock"
	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn"
	_ "github.com/holdfastlock/holdfast/zklock"
)

// root is the top of the repository.
const root = "../../../.."

// schemes are the pages in docs/stores, and the URLs' schemes that each describes.
var schemes = map[string][]string{
	"cell":       {"cell", "cells"},
	"etcd":       {"etcd", "etcds"},
	"files":      {"file"},
	"memory":     {"mem"},
	"mysql":      {"mysql", "mariadb"},
	"postgresql": {"postgres", "postgresql"},
	"redis":      {"redis", "rediss", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "redlock"},
	"sqlite":     {"sqlite"},
	"zookeeper":  {"zk", "zks"},
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	testserver.Must(t, err)
	return string(text)
}

func pageOf(store string) string { return "docs/stores/" + store + ".md" }

// TestEveryStoreHasItsPage: each scheme that is registered has a page, and README names the page.
func TestEveryStoreHasItsPage(t *testing.T) {
	var described []string
	for page, list := range schemes {
		described = append(described, list...)
		if !strings.Contains(read(t, "README.md"), "]("+pageOf(page)+")") {
			t.Errorf("README.md has no link to %s", pageOf(page))
		}
	}
	for _, scheme := range described {
		if scheme != "cells" && scheme != "etcds" && scheme != "zks" && !strings.HasPrefix(scheme, "rediss") && scheme != "redis+unix" && scheme != "postgresql" && scheme != "mariadb" && !strings.Contains(read(t, "doc.go"), "// "+scheme+"://") {
			t.Errorf("doc.go does not name %s://", scheme)
		}
	}
	slices.Sort(described)
	if have := driver.Schemes(); !slices.Equal(have, described) {
		t.Errorf("the pages describe the schemes %v; registered are %v", described, have)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs/stores/*.md"))
	if err != nil || len(files) != len(schemes) {
		t.Errorf("docs/stores has the pages %v, %v", files, err)
	}
	for _, file := range files {
		if _, ok := schemes[strings.TrimSuffix(filepath.Base(file), ".md")]; !ok {
			t.Errorf("no test knows the page %s", file)
		}
	}
}

// documented matches the first cell of a row of a table of settings, and parameter each of those in it.
var (
	documented = regexp.MustCompile("(?m)^\\| `hf\\.[^|]+ \\|")
	parameter  = regexp.MustCompile("`(hf\\.[a-z-]+)`")
)

// known matches the end of the error about a parameter that a driver does not know.
var known = regexp.MustCompile(`known are: (.*)$`)

// TestSettings: a page's table of settings has exactly the parameters that the URLs of its store take,
// without those of every store, which stand in README.
func TestSettings(t *testing.T) {
	for page, list := range schemes {
		var want []string
		for _, scheme := range list {
			u, err := driver.ParseURL(scheme + ":///var/lib/app?hf.nosuch=1")
			testserver.Must(t, err)
			_, err = driver.Open(context.Background(), u)
			found := known.FindStringSubmatch(fmt.Sprint(err))
			if found == nil {
				t.Fatalf("%s: %v", scheme, err)
			}
			want = append(want, strings.Split(strings.ReplaceAll(found[1], "none", ""), ", ")...)
		}
		slices.Sort(want)
		want = slices.DeleteFunc(slices.Compact(want), func(s string) bool { return s == "" || slices.Contains(storeurl.Keys, s) })
		var have []string
		for _, row := range documented.FindAllString(read(t, pageOf(page)), -1) {
			for _, m := range parameter.FindAllStringSubmatch(row, -1) {
				have = append(have, m[1])
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s has the settings %v; its URLs take %v", pageOf(page), have, want)
		}
	}
	for _, key := range storeurl.Keys {
		if !strings.Contains(read(t, "README.md"), "`"+key+"`") {
			t.Errorf("README.md does not name %s", key)
		}
	}
}
