//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"strings"
	"testing"
)

func TestFileName(t *testing.T) {
	for name, want := range map[string]string{
		"orders":                 "orders.lock",
		"orders/42":              "orders%2f42.lock",
		"Orders":                 "%4frders.lock",
		"..":                     "...lock",
		"a b":                    "a%20b.lock",
		"é":                      "%c3%a9.lock",
		"~":                      "%7e.lock",
		strings.Repeat("a", 250): strings.Repeat("a", 250) + ".lock",
		strings.Repeat("a", 251): "~772f911dd9d6692897188d0b03f718fb5fbd02020d0fce1374f1354a31205024.lock",
	} {
		got := fileName(name)
		if got != want {
			t.Errorf("fileName(%q) = %q, want %q", name, got, want)
		}
	}
}

// FuzzFileName: two names never have the same file, whatever the file system
// does to case, and file names are never too long.
func FuzzFileName(f *testing.F) {
	f.Add("orders/42", "orders%2f42")
	f.Add("A", "a")
	f.Add("..", "~14f3")
	f.Add(strings.Repeat("é", 100), strings.Repeat("x", 512))
	f.Fuzz(func(t *testing.T, a, b string) {
		fa, fb := fileName(a), fileName(b)
		if (a == b) != (strings.EqualFold(fa, fb)) {
			t.Errorf("%q has file %q, and %q has %q", a, fa, b, fb)
		}
		if len(fa) > longest || strings.ContainsAny(fa, "/\x00") || fa == "." || fa == ".." {
			t.Errorf("%q has file %q", a, fa)
		}
	})
}
