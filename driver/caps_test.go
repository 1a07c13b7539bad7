package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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
		{"tokens", Caps{}, Caps{Fencing: true}, []string{"fencing tokens"}},
		{"shared", Caps{}, Caps{Shared: true}, []string{"shared locks"}},
		{"semaphores", Caps{}, Caps{Slots: true}, []string{"semaphores"}},
		{"fairness", Caps{}, Caps{Fair: true}, []string{"fairness between clients"}},
		{"TTLs as the store has them", all, Caps{MinTTL: time.Second, MaxTTL: time.Minute}, nil},
		{"TTLs within", all, Caps{MinTTL: 2 * time.Second, MaxTTL: 30 * time.Second}, nil},
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

func TestPollInterval(t *testing.T) {
	if got := (Caps{}).PollInterval(); got != DefaultPoll {
		t.Errorf("without Poll the interval is %v", got)
	}
	if got := (Caps{Poll: time.Minute}).PollInterval(); got != time.Minute {
		t.Errorf("with Poll of a minute the interval is %v", got)
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

func TestFaultsAreDistinct(t *testing.T) {
	faults := Faults()
	if sorted := slices.Sorted(slices.Values(faults)); len(slices.Compact(sorted)) != len(faults) ||
		sorted[0] == "" {
		t.Errorf("a fault is named twice or not at all: %q", faults)
	}
}

func TestIdle(t *testing.T) {
	for _, c := range []struct {
		info Info
		want bool
	}{
		{Info{Name: "x"}, true},
		{Info{Name: "x", Slots: 3}, true},
		{Info{Holders: []Holder{{}}}, false},
		{Info{Waiters: []Waiter{{}}}, false},
		{Info{ClosedFor: 1}, false},
	} {
		if got := c.info.Idle(); got != c.want {
			t.Errorf("%+v is idle: %t", c.info, got)
		}
	}
}
