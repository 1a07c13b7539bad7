package redisson

import (
	"slices"
	"strings"
	"testing"
)

func TestOwner(t *testing.T) {
	for _, owner := range []string{
		"0123456789abcdef0123456789abcdef", strings.Repeat("0", 32), "", "me", "0123456789ABCDEF0123456789ABCDEF",
		"0123456789abcdef0123456789abcdeg", "mode", "x:write", "01234567-89ab-cdef-0123-456789abcdef:1",
	} {
		text := Owner(owner)
		if !IsOwner(text) || strings.HasSuffix(text, ":write") || text != Owner(owner) {
			t.Errorf("the owner %q is written as %q", owner, text)
		}
		_, hexes := digits(owner)
		if shown := Shown(text); hexes && shown != owner || Owner(shown) != text {
			t.Errorf("the owner %q, written as %q, is shown as %q", owner, text, shown)
		}
		if IsOwner(owner) == strings.HasSuffix(text, ":0") {
			t.Errorf("the owner %q is written as %q: scripts know Holdfast's by their end", owner, text)
		}
	}
	if java := "01234567-89AB-cdef-0123-456789abcdef:42"; Owner(java) != java {
		t.Errorf("an owner of Java is written as %q", Owner(java))
	}
	if got := Owner("0123456789abcdef0123456789abcdef"); got != "01234567-89ab-cdef-0123-456789abcdef:0" {
		t.Errorf("an owner of digits is written as %q", got)
	}
	for _, java := range []string{
		"01234567-89ab-cdef-0123-456789abcdef:1", "01234567-89AB-cdef-0123-456789abcdef:0", "0123456789abcdef0123456789abcdef:0", ":0", "",
	} {
		if shown := Shown(java); shown != java {
			t.Errorf("%q, which Holdfast does not write, is shown as %q", java, shown)
		}
	}
	for _, other := range []string{"", ":", "mode", "a:1", "01234567-89ab-cdef-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdef:1:write", "01234567-89ab-cdef-0123-456789abcdeg:1"} {
		if IsOwner(other) {
			t.Errorf("%q is taken for an owner", other)
		}
	}
}

func TestPermits(t *testing.T) {
	a, b := PermitIDs("0123456789abcdef0123456789abcdef", 3), PermitIDs("me", 2)
	if len(a) != 48 || a[:16] != "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef" {
		t.Errorf("the ids are %x", a)
	}
	java := "sixteen bytes..."
	ids := []string{b[16:], a[32:], java, a[:16], a[16:32], b[:16], "odd"}
	got := Permits(ids)
	want := map[string][]string{
		a[:16]: {a[:16], a[16:32], a[32:]}, b[:16]: {b[:16], b[16:]}, java: {java}, "odd": {"odd"},
	}
	if len(got) != len(want) {
		t.Errorf("%d owners, not %d", len(got), len(want))
	}
	for first, all := range want {
		if !slices.Equal(got[first], all) {
			t.Errorf("of %x there are %x, not %x", first, got[first], all)
		}
	}
}
