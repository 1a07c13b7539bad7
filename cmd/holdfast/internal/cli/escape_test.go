package cli

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"orders/42 é日 😀":           "orders/42 é日 😀",
		"\x1b[2J":                  `\x1b[2J`,
		"a\tb\nc\x00\x7f":          `a\tb\nc\x00\x7f`,
		"\u202e\u200b\u2066\ufeff": `\u202e\u200b\u2066\ufeff`,
		"\u00a0\u3000\u2028":       `\u00a0\u3000\u2028`,
		"\U000e0041":               `\U000e0041`,
		`\x1b`:                     `\\x1b`,
		"\xff\xc3":                 `\xff\xc3`,
		"\u009b31m":                `\u009b31m`,
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b\\\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := escape(text)
		for _, r := range got {
			if r == utf8.RuneError && !strings.ContainsRune(text, utf8.RuneError) || r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Fatalf("escape(%q) has %U", text, r)
			}
		}
		if escape(got) == got && got != text {
			t.Fatalf("escape(%q) = %q cannot be told from the text itself", text, got)
		}
	})
}

func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("holdfast: first"), errors.New("holdfast: second\n\x1b"))
	if got := oneLine(err); got != `first; second; \x1b` {
		t.Errorf("oneLine: %s", got)
	}
}
