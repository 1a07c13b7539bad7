package driver

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// nameRules are the rules of names, each with the words of its error (P10). They are written
// down a second time, apart from CheckName.
var nameRules = []struct {
	words  string
	broken func(string) bool
}{
	{"is empty", func(s string) bool { return s == "" }},
	{"at most 512 are allowed", func(s string) bool { return len(s) > 512 }},
	{"not valid UTF-8", func(s string) bool { return !utf8.ValidString(s) }},
	{"control character", func(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }},
	{"empty path element", func(s string) bool {
		for element := range strings.SplitSeq(s, "/") {
			if element == "" && s != "" {
				return true
			}
		}
		return false
	}},
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"orders/42":                       "",
		"a":                               "",
		" ":                               "",
		".":                               "",
		"../..":                           "",
		"{tag}:*?[x]%2F\\":                "",
		"bestellung/größe/日本/🔒":           "",
		strings.Repeat("x", 512):          "",
		"":                                "is empty",
		strings.Repeat("x", 513):          "513 bytes: at most 512 are allowed",
		strings.Repeat("é", 257):          "514 bytes: at most 512 are allowed",
		"a\xffb":                          "not valid UTF-8",
		"a\x00b":                          "control character at byte 1",
		"two\nlines":                      "control character at byte 3",
		"a\x7f":                           "control character at byte 1",
		"a\u0085b":                        "control character at byte 1",
		"/a":                              "empty path element",
		"a/":                              "empty path element",
		"a//b":                            "empty path element",
		"/":                               "empty path element",
		strings.Repeat("x", 512) + "\x00": "513 bytes",
	} {
		err := CheckName(name)
		switch {
		case want == "" && err != nil:
			t.Errorf("P10: %q is refused: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("P10: %q: the error is %v, want one that says %q", name, err, want)
		}
	}
}

// FuzzName: a name is accepted exactly if it breaks no rule. The error names a rule that it
// breaks, in one printable line.
func FuzzName(f *testing.F) {
	for _, seed := range []string{
		"orders/42", "", "/", "a//b", "a/", "\x00", "\xff", "\u0085", "größe", "\u2028",
		strings.Repeat("ab/", 171), strings.Repeat("x", 513),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName(name)
		var broken, named bool
		for _, rule := range nameRules {
			if rule.broken(name) {
				broken = true
				named = named || err != nil && strings.Contains(err.Error(), rule.words)
			}
		}
		switch {
		case err == nil && broken:
			t.Errorf("P10: %q is accepted", name)
		case err != nil && !broken:
			t.Errorf("P10: %q is refused: %v", name, err)
		case err != nil && !named:
			t.Errorf("P10: of %q the error is %v, which names no rule that it breaks", name, err)
		case err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl):
			t.Errorf("the error of %q has a control character: %q", name, err)
		}
	})
}
