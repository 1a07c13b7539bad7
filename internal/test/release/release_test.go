//go:build soak

package release

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

const module = "github.com/holdfastlock/holdfast"

// release is the version that the tests publish: one that no real release has, because the go
// command keeps it in the cache that it shares with other work, until the test ends.
var release = fmt.Sprintf("v0.1.0-test.%d.x", os.Getpid())

// repo is a clone in which scripts/release has run.
type repo struct {
	root  string // of the repository that is tested
	clone string
	tags  []string
	env   []string // for the go command: our modules come from the tags
	bin   string   // GOBIN
}

// published returns the clone, once for all tests.
var published = sync.OnceValues(publish)

var temp string // for the clone

func TestMain(m *testing.M) {
	var err error
	if temp, err = os.MkdirTemp("", "holdfast-release-*"); err != nil {
		panic(err)
	}
	code := m.Run()
	forget()
	os.RemoveAll(temp)
	os.Exit(code)
}

// forget removes the release, which nobody else must find, from the module cache.
func forget() {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return
	}
	dir := strings.TrimSpace(string(cache))
	for _, top := range []string{dir, filepath.Join(dir, "cache/download")} {
		filepath.WalkDir(filepath.Join(top, filepath.FromSlash(path.Dir(module))), func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !strings.Contains(name, release):
				return nil
			case d.IsDir():
				makeWritable(name)
				os.RemoveAll(name)
				return fs.SkipDir
			}
			return os.Remove(name)
		})
	}
	makeWritable(temp)
}

func makeWritable(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o755)
		}
		return nil
	})
}

func publish() (*repo, error) {
	r := &repo{clone: filepath.Join(temp, "clone"), bin: filepath.Join(temp, "bin")}
	out, err := run("", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r.root = strings.TrimSpace(out)
	if _, err = run("", nil, "git", "clone", "-q", r.root, r.clone); err != nil {
		return nil, err
	}
	identity := []string{
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
	if _, err = run(r.clone, identity, "scripts/release", release); err != nil {
		return nil, err
	}
	if out, err = run(r.clone, nil, "git", "tag", "--list", "*"+release); err != nil {
		return nil, err
	}
	r.tags = strings.Fields(out)
	if err = r.proxy(); err != nil {
		return nil, err
	}
	_, err = r.goTool(temp, "install", module+"/cmd/holdfast@"+release)
	return r, err
}

// proxy fills a module proxy, in files, from the tags, as a public proxy does from a public
// repository: the go command fetches each.
func (r *repo) proxy() error {
	cache := filepath.Join(temp, "cache")
	direct := []string{
		"GOMODCACHE=" + cache, "GOPROXY=direct", "GOSUMDB=off", "GOWORK=off", "GOFLAGS=",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + r.clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + module,
	}
	args := []string{"mod", "download"}
	for _, tag := range r.tags {
		path := strings.TrimSuffix(module+"/"+strings.TrimSuffix(tag, release), "/")
		args = append(args, path+"@"+release)
	}
	if _, err := run(temp, direct, "go", args...); err != nil {
		return err
	}
	out, err := run("", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	others := strings.Fields(out)
	r.env = []string{
		"GOPROXY=file://" + cache + "/cache/download,file://" + others[0] + "/cache/download," + others[1],
		"GONOSUMDB=" + module, "GONOSUMCHECK=1", "GOWORK=off", "GOFLAGS=", "GOBIN=" + r.bin,
	}
	return nil
}

func (r *repo) goTool(dir string, args ...string) (string, error) {
	return run(dir, r.env, "go", args...)
}

// run runs a program and returns its output. The error has it too.
func run(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), err
}

func released(t *testing.T) *repo {
	t.Helper()
	r, err := published()
	testserver.Must(t, err)
	return r
}

// TestTags: each module that is published has a tag, and its go.mod there replaces nothing and
// is complete. The command that was installed knows its version.
func TestTags(t *testing.T) {
	r := released(t)
	out, err := run(r.clone, nil, "go", "list", "-m", "-f", "{{.Path}}")
	testserver.Must(t, err)
	tags := map[string]bool{}
	for _, tag := range r.tags {
		tags[tag] = true
	}
	for _, path := range strings.Fields(out) {
		sub := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		tag := strings.TrimPrefix(sub+"/"+release, "/")
		if strings.HasPrefix(sub, "internal/") || sub == "examples" || sub == "interop" || sub == "zklock/bench" {
			if tags[tag] {
				t.Errorf("there is a tag %s, of a module for tests", tag)
			}
			continue
		}
		if !tags[tag] {
			t.Errorf("there is no tag %s", tag)
			continue
		}
		mod, err := run(r.clone, nil, "git", "show", tag+":"+strings.TrimPrefix(sub+"/go.mod", "/"))
		if err != nil {
			t.Error(err)
		}
		if regexp.MustCompile(`(?m)=>|` + module + `\S* v0\.0\.0`).MatchString(mod) {
			t.Errorf("%s: go.mod has replace lines, or requires what is not published:\n%s", tag, mod)
		}
	}
	if out, err := run("", nil, filepath.Join(r.bin, "holdfast"), "version"); err != nil || !strings.Contains(out, release) {
		t.Errorf("holdfast version: %q, %v, want %s in it", out, err, release)
	}
	tree := filepath.Join(temp, "tree")
	if _, err := run(r.clone, nil, "git", "worktree", "add", "-q", "--detach", tree, "cmd/holdfast/"+release); err != nil {
		t.Fatal(err)
	}
	if _, err := r.goTool(filepath.Join(tree, "cmd/holdfast"), "list", "-mod=readonly", "-deps", "-test", "./..."); err != nil {
		t.Error(err)
	}
}

// TestScriptRefuses: a version that is none, that exists, or for which there is no text.
func TestScriptRefuses(t *testing.T) {
	r := released(t)
	for version, want := range map[string]string{
		"1.2.3": "no version", "v1.2": "no version", "v01.0.0": "no version",
		release: "exists", "v99.0.0": "no section",
	} {
		_, err := run(r.clone, nil, "scripts/release", version)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("scripts/release %s: %v, want %q", version, err, want)
		}
	}
	dirty := filepath.Join(r.clone, "dirty")
	testserver.Must(t, os.WriteFile(dirty, nil, 0o644))
	defer os.Remove(dirty)
	if _, err := run(r.clone, nil, "scripts/release", "v99.0.0-a"); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Errorf("with a file that is not committed: %v", err)
	}
}

var (
	goLines  = regexp.MustCompile(`(?m)^\s*go (get|install) (\S*` + module + `\S*)$`)
	programs = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
)

// TestDocumentation: in an empty module, the go command does what README and the pages say, and the
// program of README runs.
func TestDocumentation(t *testing.T) {
	r := released(t)
	dir := t.TempDir()
	if _, err := r.goTool(dir, "mod", "init", "example.org/app"); err != nil {
		t.Fatal(err)
	}
	readme, pages := texts(t, r.root)
	done := map[string]bool{}
	for _, line := range goLines.FindAllStringSubmatch(readme+pages, -1) {
		verb, path := line[1], strings.TrimSuffix(line[2], "@latest")
		if strings.Contains(path, "@v") {
			t.Errorf("%q names a version: it would go stale", line[0])
		}
		if done[verb+path] {
			continue
		}
		done[verb+path] = true
		if _, err := r.goTool(dir, verb, path+"@"+release); err != nil {
			t.Error(err)
		}
	}
	for _, need := range []string{"get" + module, "install" + module + "/cmd/holdfast"} {
		if !done[need] {
			t.Errorf("README does not say go %s", need)
		}
	}
	program := programs.FindStringSubmatch(readme)
	if program == nil {
		t.Fatal("README has no whole program")
	}
	testserver.Must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Replace(program[1], `os.Getenv("HOME")`, `"`+dir+`"`, 1)), 0o644))
	if _, err := r.goTool(dir, "build", "-o", "app", "."); err != nil {
		t.Fatal(err)
	}
	if out, err := run(dir, nil, "./app"); err != nil || out == "" {
		t.Errorf("README's program: %q, %v", out, err)
	}
}

// texts returns README and all pages for users.
func texts(t *testing.T, root string) (readme, pages string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "README.md"))
	testserver.Must(t, err)
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			pages += "\n" + string(text)
			return err
		}
		return err
	})
	testserver.Must(t, err)
	return string(data), pages
}
