package testserver

import (
	"path/filepath"
	"testing"
)

// peersPackage is the name in packages.txt of what scripts/install-peers installs.
const peersPackage = "peers-7"

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
