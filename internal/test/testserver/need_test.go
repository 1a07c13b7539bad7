package testserver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fakeTB records how a test was ended.
type fakeTB struct {
	testing.TB
	skipped, failed string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Skip(args ...any) {
	f.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatal(args ...any) {
	f.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// ask calls Need as a test would and returns the path and how the test ended.
func ask(program, debianPackage string) (path string, tb fakeTB) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		path = Need(&tb, program, debianPackage)
	}()
	<-done
	return path, tb
}

// program makes an executable file and returns its path.
func program(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNeedFinds(t *testing.T) {
	onPath, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("PATH", onPath)
	defer func(usual []string) { beside = usual }(beside)
	beside = []string{filepath.Join(elsewhere, "*", "bin")}
	both := program(t, onPath, "both")
	program(t, elsewhere, "15", "bin", "both")
	program(t, elsewhere, "15", "bin", "versioned")
	newest := program(t, elsewhere, "17", "bin", "versioned")
	for name, want := range map[string]string{"both": both, "versioned": newest} {
		path, tb := ask(name, "gcc")
		if path != want || tb.skipped != "" || tb.failed != "" {
			t.Errorf("Need(%s) = %q, skipped %q, failed %q; want %q", name, path, tb.skipped, tb.failed, want)
		}
	}
}

func TestNeedMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, c := range []struct {
		require, debianPackage string
		skips                  bool
		says                   string
	}{
		{"", "gcc", true, "no-such-program is not installed: apt-get install gcc"},
		{"all", "gcc", false, "no-such-program is not installed: apt-get install gcc"},
		{"core", "gcc", false, "required by HOLDFAST_REQUIRE"},
		{"redis,core", "gcc", false, "required by HOLDFAST_REQUIRE"},
		{"redis", "gcc", true, "no-such-program is not installed"},
		{"corr", "gcc", false, `no store "corr"`},
		{"all,corr", "gcc", false, `no store "corr"`},
		{"", mysqlPackage, true, "run scripts/install-servers"},
		{"interop", peersPackage, false, "run scripts/install-servers"},
		{"", "no-such-package", false, "add a line"},
	} {
		t.Setenv("HOLDFAST_REQUIRE", c.require)
		path, tb := ask("no-such-program", c.debianPackage)
		got := tb.failed
		if c.skips {
			got = tb.skipped
		}
		if path != "" || (tb.skipped != "") != c.skips || !strings.Contains(got, c.says) {
			t.Errorf("HOLDFAST_REQUIRE=%s: Need(%s) = %q, skipped %q, failed %q; want it to say %q, skipping: %v",
				c.require, c.debianPackage, path, tb.skipped, tb.failed, c.says, c.skips)
		}
	}
}

// TestPackages reads the real table: Need must know the package of each line.
func TestPackages(t *testing.T) {
	var lines int
	for line := range strings.Lines(packages) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	stores := parsePackages(packages)
	if lines == 0 || len(stores) != lines {
		t.Errorf("packages.txt has %d lines, of which %d can be read and differ: %v",
			lines, len(stores), slices.Sorted(maps.Keys(stores)))
	}
	if stores["gcc"] != "core" {
		t.Errorf("gcc belongs to store %q, want core", stores["gcc"])
	}
}

// TestCacheDirIsTheUsers: where the user has no cache there is no fallback that another user could
// prepare.
func TestCacheDirIsTheUsers(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := cacheDir("holdfast-servers"); err == nil {
		t.Errorf("programs and files would be kept in %s", dir)
	}
}
