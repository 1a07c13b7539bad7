// Package exampletest runs the examples of packages that need a server. They have no comment
// "Output", so go test only compiles them.
package exampletest

import (
	"io"
	"os"
	"strings"
	"testing"
)

// Expect runs an example with HOLDFAST_STORE set to the URL, and compares what it prints. It changes
// os.Stdout meanwhile, so the test must not run beside others.
func Expect(t *testing.T, url, want string, example func()) {
	t.Helper()
	t.Setenv("HOLDFAST_STORE", url) // panics in a parallel test
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	example()
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(got)) != strings.TrimSpace(want) {
		t.Errorf("the example prints\n%s\nwant\n%s", got, want)
	}
}
