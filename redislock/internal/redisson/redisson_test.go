package redisson

import "testing"

func TestKeys(t *testing.T) {
	for _, c := range []struct{ name, prefixed, suffixed, latch string }{
		{"a", "p:{a}", "{a}:s", "redisson_countdownlatch__channel__{a}"},
		{"{a}", "p:{a}", "{a}:s", "redisson_countdownlatch__channel__{{a}}"},
		{"x{a}y", "p:x{a}y", "x{a}y:s", "redisson_countdownlatch__channel__{x{a}y}"},
		{"a{}b", "p:a{}b", "a{}b:s", "redisson_countdownlatch__channel__{a{}b}"},
		{"a{b", "p:a{b", "a{b:s", "redisson_countdownlatch__channel__{a{b}"},
		{"a}b", "p:{a}b}", "{a}b}:s", "redisson_countdownlatch__channel__{a}b}"},
	} {
		if p, s, l := Prefixed("p", c.name), Suffixed(c.name, "s"), LatchChannel(c.name); p != c.prefixed || s != c.suffixed || l != c.latch {
			t.Errorf("%q: %q, %q and %q", c.name, p, s, l)
		}
	}
}

func TestCheckSlots(t *testing.T) {
	for name, want := range map[string][2]bool{ // of use for a semaphore, for a latch
		"a": {true, true}, "orders/42": {true, true}, "日本": {true, true},
		"{a}": {true, false}, "x{a}y": {true, false}, "{a}{b}": {true, false}, "{a}}": {true, false},
		"a{}b": {false, false}, "a{b": {false, true}, "{}a{b}": {false, false},
		"a}b": {false, false}, "a}b{c}": {false, false}, "}{": {false, false},
	} {
		semaphore := CheckSlots(name, SemaphoreChannel(name)) == nil
		latch := CheckSlots(name, LatchChannel(name)) == nil
		if semaphore != want[0] || latch != want[1] {
			t.Errorf("%q: of use for a semaphore %v, for a latch %v; right is %v", name, semaphore, latch, want)
		}
	}
}
