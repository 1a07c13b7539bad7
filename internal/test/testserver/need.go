// Package testserver is for this repository's tests: it finds the programs that they need, and
// starts private instances of stores.
//
// A server is private to one test and ends with it. Its methods end the test on failure: call them on the test's own
// goroutine, one at a time.
//
// No other package may skip a test, so that HOLDFAST_REQUIRE can turn every skip into a failure.
package testserver

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages is the table that scripts/install-servers installs from.
//
//go:embed packages.txt
var packages string

// beside lists patterns of directories that are searched after PATH: an ordinary user's PATH
// often lacks those of servers.
var beside = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/postgresql/*/bin"}

// Need returns the path of a program, or of any file that is named by its whole path. If it is
// missing, Need skips the test and says what to install. It fails the test instead if HOLDFAST_REQUIRE is "all", or a
// list separated by commas that has the store to which the Debian package belongs. It also fails the test if
// packages.txt lacks the package, because then nothing would install it, or lacks a store that HOLDFAST_REQUIRE names.
func Need(t testing.TB, program, debianPackage string) string {
	t.Helper()
	store, ok := parsePackages(packages)[debianPackage]
	if !ok {
		t.Fatalf("no package %s in internal/test/testserver/packages.txt: add a line for it", debianPackage)
	}
	path := find(program)
	hint := fmt.Sprintf("%s is not installed: apt-get install %s", program, debianPackage)
	switch debianPackage {
	case mysqlPackage, valkeyPackage, zooKeeperPackage, peersPackage, lintersPackage:
		hint = program + " is not installed: run scripts/install-servers"
	}
	unless(t, path != "", store, hint)
	return path
}

// NeedRoot ends the test unless it runs as root: skipped, or failed if
// HOLDFAST_REQUIRE names the core. It is for tests that need processes of several
// users, or namespaces of their own.
func NeedRoot(t testing.TB) {
	t.Helper()
	unless(t, os.Geteuid() == 0, "core", "this test must run as root")
}

// unless ends the test if it has not what it needs: skipped, or failed if HOLDFAST_REQUIRE names the store.
func unless(t testing.TB, has bool, store, hint string) {
	t.Helper()
	required, err := requires(os.Getenv("HOLDFAST_REQUIRE"), store, parsePackages(packages))
	switch {
	case err != nil:
		t.Fatal(err)
	case has:
	case required:
		t.Fatalf("%s (required by HOLDFAST_REQUIRE)", hint)
	default:
		t.Skip(hint)
	}
}

// peersPackage is the name in packages.txt of what scripts/install-peers installs.
const peersPackage = "peers-8"

// peersDir is where scripts/install-peers puts it.
const peersDir = "/usr/local/lib/holdfast-" + peersPackage

// NeedPeers returns the directory with the libraries of other languages: an environment of Python in
// python, modules of Node.js in node/node_modules, and archives of Java in java. If it is missing,
// NeedPeers ends the test as [Need] does.
func NeedPeers(t testing.TB) string {
	t.Helper()
	Need(t, filepath.Join(peersDir, "python", "bin", "python3"), peersPackage)
	return peersDir
}

// lintersPackage is the name in packages.txt of what scripts/install-linters installs.
const lintersPackage = "linters-1"

// NeedLinter returns the path of a program that scripts/install-linters installs: hadolint,
// kubernetes-validate, reuse, or their python3. If it is missing, NeedLinter ends the test as [Need] does.
func NeedLinter(t testing.TB, program string) string {
	t.Helper()
	dir := "/usr/local/lib/holdfast-" + lintersPackage
	Need(t, filepath.Join(dir, "complete"), lintersPackage)
	return filepath.Join(dir, "bin", program)
}

// find looks for a file by its whole path, or for a program on PATH and then beside it, in the last
// directory of each pattern first: the newest of several versions. It returns "" if there is none.
func find(program string) string {
	if filepath.IsAbs(program) {
		if _, err := os.Stat(program); err != nil {
			return ""
		}
		return program
	}
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, pattern := range beside {
		dirs, _ := filepath.Glob(pattern) // fails for a malformed pattern only
		slices.Reverse(dirs)
		for _, dir := range dirs {
			if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
				return path
			}
		}
	}
	return ""
}

// requires reports whether the value of HOLDFAST_REQUIRE names the store.
func requires(value, store string, stores map[string]string) (bool, error) {
	required := false
	for name := range strings.SplitSeq(value, ",") {
		switch {
		case name == "all" || name == store:
			required = true
		case name != "" && !slices.Contains(slices.Collect(maps.Values(stores)), name):
			return false, fmt.Errorf("HOLDFAST_REQUIRE=%s: no store %q in internal/test/testserver/packages.txt", value, name)
		}
	}
	return required, nil
}

// parsePackages returns the store of each package of the table.
func parsePackages(table string) map[string]string {
	stores := map[string]string{}
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) == 4 && !strings.HasPrefix(fields[0], "#") {
			stores[fields[2]] = fields[1]
		}
	}
	return stores
}
