//go:build soak

package interop

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	testserver.Must(t, err)
	return string(text)
}

// TestInstalled: what is installed is what the files here say.
func TestInstalled(t *testing.T) {
	dir := testserver.NeedPeers(t)
	for _, file := range []string{"python/requirements.txt", "node/package-lock.json", "java/jars.sha256", "java/Service.java", "java/CuratorPeer.java", "java/Orders.java",
		"java/RedissonPeer.java", "java/RedissonOrders.java", "java/redisson/4.7.0.sha256", "java/redisson/3.52.0.sha256"} {
		if read(t, file) != read(t, filepath.Join(dir, filepath.Base(file))) {
			t.Errorf("%s has changed since scripts/install-peers ran: raise the number of the directory there "+
				"and in internal/test/testserver, need.go and packages.txt", file)
		}
	}
}

// TestDocumented: the pages for users name the versions that are tested.
func TestDocumented(t *testing.T) {
	page := read(t, "../docs/migrating.md") + read(t, "../docs/from-redisson.md")
	for name, in := range map[string]struct{ file, version string }{
		"redis-py": {"python/requirements.txt", `(?m)^redis==(\S+)`},
		"Curator":  {"java/pom.xml", `<artifactId>curator-recipes</artifactId>\s*<version>(.+)</version>`},
		"redsync":  {"go.mod", `redsync/v4 v(\S+)`},
	} {
		m := regexp.MustCompile(in.version).FindStringSubmatch(read(t, in.file))
		if m == nil || !strings.Contains(page, name+" "+m[1]) {
			t.Errorf("neither docs/migrating.md nor docs/from-redisson.md names %s in the version of %s: %q", name, in.file, m)
		}
	}
	for _, version := range redissons {
		if !strings.Contains(page, version) {
			t.Errorf("docs/from-redisson.md does not name the version %s", version)
		}
	}
}
