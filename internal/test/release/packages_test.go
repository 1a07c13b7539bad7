//go:build soak

package release

import (
	"debug/buildinfo"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestFiles: GoReleaser builds from the tag what a release has, for every platform; what is in a package is
// complete, and runs.
func TestFiles(t *testing.T) {
	dpkg, rpm := testserver.Need(t, "dpkg-deb", "dpkg"), testserver.Need(t, "rpm", "rpm")
	r := released(t)
	tree := filepath.Join(temp, "files")
	must(t, "", nil, "git", "clone", "-q", "--branch", release, r.clone, tree) // the go command takes no version from a worktree
	must(t, tree, r.env, "scripts/goreleaser", "release", "--clean", "--skip=publish")
	dist, version := filepath.Join(tree, "dist"), strings.TrimPrefix(release, "v")

	want := []string{"deb", "rpm"}
	for platform := range strings.FieldsSeq(must(t, r.root, nil, "scripts/binaries", "-list")) {
		platform = strings.ReplaceAll(platform, "/", "_")
		archive, list := platform+".tar.gz", []string{"tar", "-tzf"}
		if strings.HasPrefix(platform, "windows") {
			archive, list = platform+".zip", []string{testserver.Need(t, "unzip", "unzip"), "-Z1"}
		}
		name := "holdfast_" + version + "_" + archive
		content := strings.Fields(strings.ReplaceAll(must(t, dist, nil, list[0], list[1], name), ".exe\n", "\n"))
		for _, file := range []string{"holdfast", "LICENSE", "README.md", "CHANGELOG.md", "completions/_holdfast", "completions/holdfast.ps1"} {
			if !slices.Contains(content, file) {
				t.Errorf("%s has no %s: %v", name, file, content)
			}
		}
		want = append(want, archive, platform+".cdx.json")
	}
	sums := must(t, dist, nil, "sha256sum", "--check", "--strict", "checksums.txt")
	for _, end := range want {
		if !strings.Contains(sums, end+": OK") {
			t.Errorf("checksums.txt has no file *%s:\n%s", end, sums)
		}
	}
	if strings.Count(sums, ".deb: OK") != 2 || strings.Count(sums, ".rpm: OK") != 2 {
		t.Errorf("there are no packages of two processors each:\n%s", sums)
	}

	root := t.TempDir()
	deb := one(t, dist, "*_"+runtime.GOARCH+".deb")
	rpmFile := one(t, dist, "*."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]+".rpm")
	must(t, "", nil, dpkg, "--extract", deb, root)
	if out := must(t, "", nil, filepath.Join(root, "usr/bin/holdfast"), "version"); !strings.Contains(out, release+" ") {
		t.Errorf("the packaged command is %q, want %s", out, release)
	}
	entries := regexp.MustCompile(`(?m)^(-\S+) +(?:1 )?root[ /]+root.* \.?(/\S+)$`)
	for list, zsh := range map[string]string{
		must(t, "", nil, dpkg, "--contents", deb): "vendor-completions", must(t, "", nil, rpm, "-qplv", rpmFile): "site-functions",
	} {
		files := map[string]string{}
		for _, m := range entries.FindAllStringSubmatch(list, -1) {
			files[m[2]] = m[1]
		}
		want := map[string]string{"/usr/bin/holdfast": "-rwxr-xr-x"}
		for _, file := range []string{
			"lib/systemd/system/holdfast-cell.service", "lib/systemd/system/holdfast-elect@.service", "share/doc/holdfast/copyright",
			"share/bash-completion/completions/holdfast", "share/fish/vendor_completions.d/holdfast.fish", "share/zsh/" + zsh + "/_holdfast",
		} {
			want["/usr/"+file] = "-rw-r--r--"
		}
		if !maps.Equal(files, want) {
			t.Errorf("a package has %v, want %v", files, want)
		}
	}
	about := must(t, "", nil, dpkg, "--show", "--showformat", "${Version} ", deb) +
		must(t, "", nil, rpm, "-qp", "--queryformat", "%{VERSION} %{LICENSE}", rpmFile)
	if base, _, _ := strings.Cut(version, "-"); !regexp.MustCompile(`^` + base + `~\S* ` + base + `~\S* Apache-2.0$`).MatchString(about) {
		t.Errorf("the packages say %q", about)
	}

	t.Run("SBOM", func(t *testing.T) { checkSBOM(t, root, one(t, dist, "*_linux_"+runtime.GOARCH+".cdx.json")) })
	t.Run("systemd", func(t *testing.T) { checkUnits(t, root) })
}

// checkSBOM compares the list of components with the modules that are in the binary.
func checkSBOM(t *testing.T, root, file string) {
	info, err := buildinfo.ReadFile(filepath.Join(root, "usr/bin/holdfast"))
	text, unread := os.ReadFile(file)
	testserver.Must(t, err, unread)
	var sbom struct {
		Components []struct{ Name, Version string }
	}
	testserver.Must(t, json.Unmarshal(text, &sbom))
	listed := map[string]string{}
	for _, c := range sbom.Components {
		listed[c.Name] = c.Version
	}
	for _, dep := range info.Deps {
		if listed[dep.Path] != dep.Version {
			t.Errorf("%s %s is linked, and listed as %q", dep.Path, dep.Version, listed[dep.Path])
		}
	}
	if listed[module+"/etcdlock"] != release || listed["github.com/spf13/cobra"] == "" {
		t.Errorf("of what the command requires these are listed: %v", listed)
	}
}

// checkUnits has systemd read the units as they are installed below root.
func checkUnits(t *testing.T, root string) {
	analyze := testserver.Need(t, "systemd-analyze", "systemd")
	units, _ := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*.service"))
	if len(units) != 2 {
		t.Fatalf("units: %v", units)
	}
	for _, unit := range units {
		// Systemd looks for the command on this host.
		must(t, "", nil, "sed", "-i", "s,^ExecStart=holdfast,ExecStart="+root+"/usr/bin/holdfast,", unit)
		if out := must(t, "", nil, "sh", "-c", `"$0" verify --man=no --recursive-errors=no "$1" 2>&1`, analyze, unit); out != "" {
			t.Errorf("%s: %s", unit, out)
		}
	}
	must(t, "", nil, analyze, "security", "--no-pager", "--offline=true", "--threshold=20", units[0]) // of 100
}

// TestLinters: the linters find nothing in the Dockerfile, the manifests of Kubernetes and the licences.
func TestLinters(t *testing.T) {
	for _, command := range [][]string{
		{"hadolint", "packaging/Dockerfile"},
		{"kubernetes-validate", "--strict", "--quiet", "packaging/kubernetes/cell.yaml", "packaging/kubernetes/elect.yaml"},
		{"reuse", "lint"},
	} {
		t.Run(command[0], func(t *testing.T) {
			must(t, "../../..", nil, testserver.NeedLinter(t, command[0]), command[1:]...)
		})
	}
}

// one returns the only file of a directory that a pattern matches.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, pattern))
	if len(found) != 1 {
		t.Fatalf("%s: %v, want one", pattern, found)
	}
	return found[0]
}

func must(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(dir, env, name, args...)
	testserver.Must(t, err)
	return out
}
