package testserver

import "testing"

func TestLong(t *testing.T) {
	for value, want := range map[string]int{"": 1, "0": 1, "1": 2} {
		t.Setenv("HOLDFAST_LONG", value)
		if got := Long(1, 2); got != want {
			t.Errorf("HOLDFAST_LONG=%q chooses %d, not %d", value, got, want)
		}
	}
}
