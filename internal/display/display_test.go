package display

import (
	"testing"
	"time"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"orders/42 é日 😀":           "orders/42 é日 😀",
		"\x1b[2J":                  `\x1b[2J`,
		"a\tb\nc\x00\x7f":          `a\tb\nc\x00\x7f`,
		"\u202e\u200b\u2066\ufeff": `\u202e\u200b\u2066\ufeff`,
		"\u00a0\u3000\u2028":       `\u00a0\u3000\u2028`,
		"\U000e0041":               `\U000e0041`,
		"\xff\xc3":                 `\xff\xc3`,
		"\u009b31m":                `\u009b31m`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %s, want %s", in, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "-", 1234 * time.Millisecond: "1.2s", 59*time.Second + 600*time.Millisecond: "1m0s",
		61 * time.Minute: "1h01m", 47 * time.Hour: "47h00m", 50 * time.Hour: "2d02h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %s, want %s", d, got, want)
		}
	}
}
