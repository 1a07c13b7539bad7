package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestMissing(t *testing.T) {
	all := Caps{
		Fencing: true, Shared: true, Slots: true, Fair: true,
		MinTTL: time.Second, MaxTTL: time.Minute,
	}
	for _, c := range []struct {
		name       string
		have, need Caps
		want       []string
	}{
		{"nothing is needed", Caps{}, Caps{}, nil},
		{"all is there", all, all, nil},
		{"TTLs as the store has them", all, Caps{MinTTL: time.Second, MaxTTL: time.Minute}, nil},
		{"shorter TTLs", all, Caps{MinTTL: time.Millisecond},
			[]string{"TTLs down to 1ms (its shortest is 1s)"}},
		{"longer TTLs", all, Caps{MaxTTL: time.Hour}, []string{"TTLs up to 1h0m0s (its longest is 1m0s)"}},
		{"no bounds", Caps{}, Caps{MinTTL: 1, MaxTTL: 1000 * time.Hour}, nil},
		{"everything", Caps{MinTTL: time.Hour, MaxTTL: time.Hour}, Caps{
			Fencing: true, Shared: true, Slots: true, Fair: true, MinTTL: 1,
			MaxTTL: 2 * time.Hour,
		}, []string{"fencing tokens", "shared locks", "semaphores",
			"fairness", "TTLs down", "TTLs up"}},
		{"Store, Poll, TokenBlock and Guarantees do not matter", Caps{}, Caps{
			Store: "x", Poll: 1, TokenBlock: 1, Guarantees: Guarantees{Summary: "x"},
		}, nil},
	} {
		got := c.have.Missing(c.need)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: missing is %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWords fixes the words of documentation and logs.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		word fmt.Stringer
		want string
	}{
		{Exclusive, "exclusive"}, {Shared, "shared"}, {Slot, "slot"}, {Slot + 1, "unknown mode"},
		{Unstated, "unstated"}, {Impossible, "n/a"}, {Keeps, "kept"}, {Delays, "kept, late"},
		{Breaks, "can break"}, {Breaks + 1, "unstated"},
	} {
		if got := c.word.String(); got != c.want {
			t.Errorf("%#v is called %q, want %q", c.word, got, c.want)
		}
	}
}

// TestCommonFaults: a store's own verdict counts, and no fault that befalls servers has one by itself.
func TestCommonFaults(t *testing.T) {
	own := Verdict{Impossible, Impossible, "one process"}
	all := CommonFaults(map[Fault]Verdict{Partition: own})
	if all[Partition] != own || all[ClientPause].Exclusion != Breaks {
		t.Errorf("the verdicts are %v", all)
	}
	for _, f := range []Fault{StoreRestart, StoreWiped, Failover, ClockForward, ClockBack, DiskFull} {
		if all[f] != (Verdict{}) {
			t.Errorf("%s has the verdict %v", f, all[f])
		}
	}
}

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
		"hf1:?:42:a":                 "unknown mode", // as String writes it
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

func TestHeldError(t *testing.T) {
	for _, c := range []struct {
		err  HeldError
		want string
	}{
		{HeldError{}, "held by another"},
		{HeldError{Name: "orders/42", Queued: 2, ExpiresIn: time.Second}, "held by another, or closed for another 1s"},
		{HeldError{Token: 7}, "held by another"},
		{HeldError{Note: "till 3"}, `held by another ("till 3")`},
		{HeldError{Note: "till\n3", Token: 7}, `held by another ("till\n3", token 7)`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%#v says %q, want %q", c.err, got, c.want)
		}
		wrapped := fmt.Errorf("x: %w", &c.err)
		if !errors.Is(wrapped, ErrHeld) || errors.Is(wrapped, ErrNotHeld) {
			t.Errorf("%#v does not match ErrHeld alone", c.err)
		}
		if found, ok := errors.AsType[*HeldError](wrapped); !ok || *found != c.err {
			t.Errorf("%#v is found as %#v", c.err, found)
		}
	}
}

func TestGone(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{ErrNotHeld, true},
		{fmt.Errorf("x: %w", ErrBroken), true},
		{errors.Join(context.Canceled, ErrNotHeld), true},
		{ErrHeld, false},
		{ErrUncertain, false},
		{ErrClosed, false},
		{context.DeadlineExceeded, false},
	} {
		if got := Gone(c.err); got != c.want {
			t.Errorf("Gone(%v) is %t", c.err, got)
		}
	}
}

func TestUncertain(t *testing.T) {
	err := Uncertain(context.DeadlineExceeded)
	if !errors.Is(err, ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) || Gone(err) {
		t.Errorf("%v is not both what it was and uncertain", err)
	}
	if want := "outcome unknown: context deadline exceeded"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
}

// TestConfirmEvery: P7: a place is confirmed within each poll, or two thirds as often far behind. Where the store recalls
// waiters, one far behind confirms the more rarely the more are ahead, but once in eight polls, whatever the store says.
func TestConfirmEvery(t *testing.T) {
	const most = math.MaxInt
	for _, recalls := range []bool{false, true} {
		caps := Caps{Poll: 2 * time.Second, Recalls: recalls}
		polls := map[int]float64{-1: 1, 0: 1, 127: 1, 128: 1.5, 192: 1.5, 1024: 1.5, most: 1.5}
		if recalls {
			polls[512], polls[1024], polls[most] = 4, 8, 8
		}
		for ahead, want := range polls {
			every, life := caps.ConfirmEvery(ahead), caps.PlaceLife(ahead)
			if every != time.Duration(want*float64(caps.Poll)) || life != every+caps.Poll {
				t.Errorf("recalls %t, %d ahead: each %v, and a place lasts %v", recalls, ahead, every, life)
			}
		}
	}
}
