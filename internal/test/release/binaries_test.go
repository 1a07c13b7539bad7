//go:build soak

package release

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPlatforms: GoReleaser builds for the platforms that scripts/binaries knows and make lint
// checks.
func TestPlatforms(t *testing.T) {
	root := top(t)
	config, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^      - (\w+)_(\w+)$`).FindAllStringSubmatch(string(config), -1) {
		targets = append(targets, m[1]+"/"+m[2])
	}
	out, err := run(root, nil, "scripts/binaries", "-list")
	if err != nil {
		t.Fatal(err)
	}
	if list := strings.Fields(out); len(list) != 6 || !slices.Equal(list, targets) {
		t.Errorf("scripts/binaries builds for %v, GoReleaser for %v", list, targets)
	}
}

func top(t *testing.T) string {
	t.Helper()
	out, err := run("", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// TestExtras: a release has completions that their shell can read.
func TestExtras(t *testing.T) {
	dir := t.TempDir()
	if _, err := run(top(t), nil, "scripts/binaries", "-extras", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := run("", nil, "bash", "-n", filepath.Join(dir, "completions", "holdfast.bash")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"_holdfast", "holdfast.fish", "holdfast.ps1"} {
		if info, err := os.Stat(filepath.Join(dir, "completions", name)); err != nil || info.Size() == 0 {
			t.Errorf("completions/%s: %v", name, err)
		}
	}
}
