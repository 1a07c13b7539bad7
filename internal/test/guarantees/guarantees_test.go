package guarantees

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// two are stores as unlike as can be.
func two() []Store {
	return []Store{
		{Package: "onelock", URL: "one://host", Caps: driver.Caps{
			Ops: driver.OpQueue | driver.OpBreak, Fencing: true, Slots: true,
			MinTTL: time.Second, MaxTTL: time.Hour, Poll: 2 * time.Second,
			Guarantees: driver.Guarantees{
				Summary: "A summary.", Tokens: "A counter.", Lateness: 3 * time.Second,
				Faults: map[driver.Fault]driver.Verdict{
					driver.ClientPause: {Exclusion: driver.Breaks, Tokens: driver.Keeps, Note: "a | b\nc"},
					driver.DiskFull:    {Exclusion: driver.Breaks, Tokens: driver.Delays},
				},
			},
		}},
		{Package: "twolock", URL: "two://", Caps: driver.Caps{Shared: true, Fair: true, Ops: driver.OpNotify | driver.OpInspect | driver.OpDowngrade}},
	}
}

func TestRender(t *testing.T) {
	got := string(Render(two()))
	for _, line := range []string{
		"| [onelock](#onelock) | yes | no | no | yes | yes | no | no | yes | no | no | no | 1s to 1h0m0s | 2s |",
		"| [twolock](#twolock) | no | yes | yes | no | no | yes | yes | no | yes | no | no | any | 1s |",
		"## onelock", "A summary.", "- **Tokens**: A counter.",
		"- **Lateness** (P5): a dead holder's name opens at most 3s after TTL and lock-delay, or its minimum hold, are over.",
		"- **Lateness** (P5): a dead holder's name opens when TTL and lock-delay, or its minimum hold, are over, without delay by the store.",
		`| client pause | can break | kept | a \| b c |`,
		"| disk full | can break | kept, late |  |",
		"| fail-over | unstated | unstated |  |", // what is not said is not made up
	} {
		if strings.Count(got, "\n"+line+"\n") == 0 {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	if n := strings.Count(got, "\n| fail-over |"); n != 3 {
		t.Errorf("fail-over has %d rows, want its meaning and one for each store", n)
	}
}

func TestTTLs(t *testing.T) {
	for want, c := range map[string]driver.Caps{
		"any": {}, "from 1ms": {MinTTL: time.Millisecond}, "up to 1m0s": {MaxTTL: time.Minute}, "1s to 1m0s": {MinTTL: time.Second, MaxTTL: time.Minute},
	} {
		if got := ttls(c); got != want {
			t.Errorf("TTLs from %v to %v are %q, want %q", c.MinTTL, c.MaxTTL, got, want)
		}
	}
}

func TestEveryFaultHasAMeaning(t *testing.T) {
	for _, f := range driver.Faults() {
		if meanings[f] == "" {
			t.Errorf("nothing says what %q is", f)
		}
	}
	if len(meanings) != len(driver.Faults()) {
		t.Errorf("there are meanings of %d faults, and %d faults", len(meanings), len(driver.Faults()))
	}
}

func TestTable(t *testing.T) {
	want := "| [`onelock`](docs/guarantees.md#onelock) | `one://host` | A summary. | yes | no | client pause, disk full |\n"
	got := string(Table(two()))
	if !strings.Contains(got, want) || !strings.Contains(got, "| no | yes | nothing listed |") {
		t.Errorf("the table is\n%s", got)
	}
}

func TestSplice(t *testing.T) {
	got, err := Splice([]byte("a\n"+begin+"old\n"+end+"\nb"), []byte("new\n"))
	if want := "a\n" + begin + "new\n" + end + "\nb"; err != nil || string(got) != want {
		t.Errorf("spliced: %q, %v", got, err)
	}
	again, err := Splice(got, []byte("new\n"))
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("spliced again: %q, %v", again, err)
	}
	for _, bad := range []string{"", begin, end, end + begin, begin + end + begin, begin + end + end} {
		if got, err := Splice([]byte(bad), nil); err == nil {
			t.Errorf("%q is spliced to %q", bad, got)
		}
	}
}
