package testserver

import (
	"os"
	"testing"
)

// NeedRoot ends the test unless it runs as root: skipped, or failed if
// HOLDFAST_REQUIRE names the core. It is for tests that need processes of several
// users, or namespaces of their own.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	required, err := requires(os.Getenv("HOLDFAST_REQUIRE"), "core", parsePackages(packages))
	if err != nil || required {
		t.Fatalf("this test must run as root (%v)", err)
	}
	t.Skip("this test must run as root")
}
