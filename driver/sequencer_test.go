package driver

import (
	"math"
	"strings"
	"testing"
)

func TestSequencerText(t *testing.T) {
	for _, c := range []struct {
		s    Sequencer
		text string
	}{
		{Sequencer{"orders/42", Exclusive, 42}, "hf1:x:42:orders%2F42"},
		{Sequencer{"a b:c", Shared, 0}, "hf1:s:0:a+b%3Ac"},
		{Sequencer{"日", Slot, 1<<53 - 1}, "hf1:p:9007199254740991:%E6%97%A5"},
	} {
		if got := c.s.String(); got != c.text {
			t.Errorf("%#v is written as %q, want %q", c.s, got, c.text)
		}
		if got, err := ParseSequencer(c.text); err != nil || got != c.s {
			t.Errorf("%q is read as %#v, %v", c.text, got, err)
		}
	}
}

func TestSequencerOfUnknownMode(t *testing.T) {
	for _, mode := range []Mode{Slot + 1, math.MaxUint8} {
		text := Sequencer{"x", mode, 1}.String()
		if text != "hf1:?:1:x" {
			t.Errorf("mode %d is written as %q", mode, text)
		}
		if _, err := ParseSequencer(text); err == nil || !strings.Contains(err.Error(), "unknown mode") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseSequencerRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "malformed",
		"hf1":                        "malformed",
		"hf1:x:42":                   "malformed",
		"hf2:x:42:a":                 "malformed",
		"HF1:x:42:a":                 "malformed",
		" hf1:x:42:a":                "malformed",
		"hf1::42:a":                  "unknown mode",
		"hf1:xs:42:a":                "unknown mode",
		"hf1:X:42:a":                 "unknown mode",
		"hf1:x::a":                   "malformed token",
		"hf1:x:-1:a":                 "malformed token",
		"hf1:x:+1:a":                 "malformed token",
		"hf1:x:042:a":                "malformed token",
		"hf1:x:0x2a:a":               "malformed token",
		"hf1:x:9223372036854775808:": "malformed token",
		"hf1:x:42:":                  "malformed name",
		"hf1:x:42:a/b":               "malformed name", // the slash is written %2F
		"hf1:x:42:a%2fb":             "malformed name", // in upper case
		"hf1:x:42:%61":               "malformed name", // and nothing else is escaped
		"hf1:x:42:a%2F":              "malformed name",
		"hf1:x:42:%FF":               "malformed name",
		"hf1:x:42:a:b":               "malformed name",
		"hf1:x:42:a\n":               "malformed name",
	} {
		if s, err := ParseSequencer(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %#v, %v, want an error that says %q", text, s, err, want)
		}
	}
}

// FuzzSequencer: ParseSequencer reads a valid sequencer back from what String writes, and refuses
// every text that String would write in another way.
func FuzzSequencer(f *testing.F) {
	f.Add("hf1:x:42:orders%2F42", "orders/42", uint8(Exclusive), int64(42))
	f.Add("hf1:s:0:a+b%3Ac", "a b:c", uint8(Shared), int64(0))
	f.Add("hf1:p:1:%E6%97%A5", "日", uint8(Slot), int64(math.MaxInt64))
	f.Add("hf1:?:-1:", "", uint8(3), int64(-1))
	f.Add("hf1:x:01:a%2fb", "a//b", uint8(255), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, text, name string, mode uint8, token int64) {
		if s, err := ParseSequencer(text); err == nil {
			if s.String() != text {
				t.Errorf("%q is read, but written as %q", text, s)
			}
			if s.Mode > Slot || s.Token < 0 || CheckName(s.Name) != nil {
				t.Errorf("%q is read as %#v, which is none", text, s)
			}
		}

		s := Sequencer{name, Mode(mode), Token(token)}
		written := s.String()
		if i := strings.IndexFunc(written, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
			t.Errorf("%#v is written as %q, which does not fit a header", s, written)
		}
		read, err := ParseSequencer(written)
		valid := s.Mode <= Slot && s.Token >= 0 && CheckName(name) == nil
		if valid && (err != nil || read != s) {
			t.Errorf("%#v is written as %q and read as %#v, %v", s, written, read, err)
		}
		if !valid && err == nil {
			t.Errorf("%#v is not valid, but %q is read", s, written)
		}
	})
}
