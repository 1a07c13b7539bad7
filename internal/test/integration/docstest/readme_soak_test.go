//go:build soak && linux

package docstest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestReadme runs the commands and programs of README.md and README.zh.md.
func TestReadme(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
	for _, page := range []string{"README.md", "README.zh.md"} {
		r := newRunner(t)
		r.replace = strings.NewReplacer("redis://localhost:6379", "redis://"+server.Addr,
			`os.Getenv("HOME")`, `"`+r.dir+`"`, "5 * time.Second", "5 * time.Millisecond",
			"/usr/local/bin/cleanup", "true", "/usr/local/bin/report", "echo",
		)
		r.page(page)
	}
}

// TestProgramPages runs the programs of pages that need no server.
func TestProgramPages(t *testing.T) {
	t.Parallel()
	newRunner(t).page("docs/testing.md")
	newRunner(t).page("docs/recipes.md")
}

func TestObservabilityPage(t *testing.T) {
	t.Parallel()
	newRunner(t).page("docs/observability.md")
}

// TestMigrating runs the commands of the page beside a real server.
func TestMigrating(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	r := newRunner(t, "redis://localhost:6379", "redis://"+server.Addr, "redis-cli ", "redis-cli -u redis://"+server.Addr+" ")
	r.page("docs/migrating.md")
}

// TestReadmeModules follows README's steps for a store's module, for each module that it names: the
// program with that import builds, outside of the workspace.
func TestReadmeModules(t *testing.T) {
	var steps, program string
	for _, b := range blocks("README.md", read(t, "README.md")) {
		switch {
		case strings.HasPrefix(b.text, "package main"):
			program = b.text
		case strings.HasPrefix(b.text, "go mod init"):
			steps = strings.Replace(b.text, "go run .\n", "", 1)
		case strings.HasPrefix(b.text, "MODULE="):
			steps += b.text
		}
	}
	for _, module := range []string{
		"redislock/rueidisconn", "redislock/goredisconn", "etcdlock", "zklock", "celllock", "sqllock/pgconn", "sqllock/mysqlconn", "sqllock/sqliteconn",
	} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			text := strings.Replace(program, "holdfast/filelock", "holdfast/"+module, 1)
			testserver.Must(t, os.WriteFile(filepath.Join(r.dir, "main.go"), []byte(text), 0o600))
			r.shell(module, strings.Replace(steps, "MODULE=etcdlock", "MODULE="+module, 1)+"go vet .", "")
		})
	}
}

// TestReadmeNamesAll: README names each module of a store, each command and each exit code of run.
func TestReadmeNamesAll(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	for _, m := range regexp.MustCompile(`(?m)^\t\./(\S*(?:conn|lock))$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		if !strings.Contains(readme, "`"+m[1]+"`") {
			t.Errorf("README does not name the module %s", m[1])
		}
	}
	r := newRunner(t)
	r.shell("help", "holdfast --help", "")
	_, list, _ := strings.Cut(r.last, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	commands := regexp.MustCompile(`(?m)^  (\S+)`).FindAllStringSubmatch(list, -1)
	if len(commands) < 8 {
		t.Fatalf("holdfast --help lists the commands %v", commands)
	}
	for _, m := range commands {
		if m[1] != "help" && !strings.Contains(readme, "`holdfast "+m[1]+"`") {
			t.Errorf("README does not name holdfast %s", m[1])
		}
	}
	r.shell("help", "holdfast run --help", "")
	_, text, _ := strings.Cut(r.last, "Exit codes:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var said, have []string
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)   ?\S`).FindAllStringSubmatch(text, -1) {
		said = append(said, m[1])
	}
	_, codes, _ := strings.Cut(readme, "code is the command's own")
	codes, _, _ = strings.Cut(codes, "\n\n")
	for _, m := range regexp.MustCompile(`\b(\d+): `).FindAllStringSubmatch(codes, -1) {
		have = append(have, m[1])
	}
	if len(said) == 0 || !slices.Equal(said, have) {
		t.Errorf("README has the exit codes %v, holdfast run --help %v", have, said)
	}
}
