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
	const begin, end = "<!-- stores:begin -->\n", "<!-- stores:end -->"
	got, err := Splice([]byte("a\n"+begin+"old\n"+end+"\nb"), []byte("new\n"))
	if want := "a\n" + begin + "new\n" + end + "\nb"; err != nil || string(got) != want {
		t.Errorf("spliced: %q, %v", got, err)
	}
	again, err := Splice(got, []byte("new\n"))
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("spliced again: %q, %v", again, err)
	}
	other, err := SplicePart([]byte(begin+end+"<!-- risks:begin -->\nold<!-- risks:end -->"), "risks", []byte("new"))
	if want := begin + end + "<!-- risks:begin -->\nnew<!-- risks:end -->"; err != nil || string(other) != want {
		t.Errorf("another part: %q, %v", other, err)
	}
	for _, bad := range []string{"", begin, end, end + begin, begin + end + begin, begin + end + end} {
		if got, err := Splice([]byte(bad), nil); err == nil {
			t.Errorf("%q is spliced to %q", bad, got)
		}
	}
}

func TestRisks(t *testing.T) {
	got := string(Risks(two()))
	for _, line := range []string{
		"| fault | [onelock](guarantees.md#onelock) | [twolock](guarantees.md#twolock) |",
		"| client pause | **second holder** | unstated |",
		"| disk full | **second holder** | unstated |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	for _, c := range []struct {
		v    driver.Verdict
		want string
	}{
		{driver.Verdict{Exclusion: driver.Breaks, Tokens: driver.Breaks}, "**second holder, tokens**"},
		{driver.Verdict{Exclusion: driver.Keeps, Tokens: driver.Breaks}, "**tokens**"},
		{driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Breaks}, "late; **tokens**"},
		{driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Keeps}, "late"},
		{driver.Verdict{Exclusion: driver.Keeps, Tokens: driver.Keeps}, "–"},
		{driver.Verdict{Exclusion: driver.Impossible, Tokens: driver.Impossible}, "n/a"},
		{driver.Verdict{}, "unstated"},
	} {
		if got := risk(c.v); got != c.want {
			t.Errorf("the risk of %v is %q, want %q", c.v, got, c.want)
		}
	}
}

func TestDefects(t *testing.T) {
	got := string(Defects(two()))
	for _, line := range []string{
		"| store | no expiry | no owner | wrong expiry | fail-over | paused client |",
		"| [onelock](guarantees.md#onelock) | unstated | cannot happen | unstated | unstated | **client pause** |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	all := func(e driver.Effect) Store {
		s := Store{Package: "alllock", Caps: driver.Caps{Guarantees: driver.Guarantees{Faults: map[driver.Fault]driver.Verdict{}}}}
		for _, f := range driver.Faults() {
			s.Caps.Guarantees.Faults[f] = driver.Verdict{Exclusion: e, Tokens: e}
		}
		return s
	}
	for e, want := range map[driver.Effect]string{
		driver.Keeps:      "| cannot happen | cannot happen | cannot happen | cannot happen | cannot happen |",
		driver.Impossible: "| cannot happen | cannot happen | cannot happen | cannot happen | cannot happen |",
		driver.Delays:     "| names open late | cannot happen | names open late | names open late | names open late |",
		driver.Breaks:     "| **client crash** | cannot happen | **late replies, store clock forward, store clock backward** | **store restart, store memory lost, fail-over** | **client pause, client suspend** |",
	} {
		if got := string(Defects([]Store{all(e)})); !strings.Contains(got, want) {
			t.Errorf("%v: no %q in\n%s", e, want, got)
		}
	}
}

func TestCharacter(t *testing.T) {
	got := string(Character(two()))
	for _, line := range []string{
		"| [onelock](guarantees.md#onelock) | no | by its next renewal | no | 2s | 1s | TTL + lock-delay + up to 3s |",
		"| [twolock](guarantees.md#twolock) | yes | at once | polls | 1s | any | TTL + lock-delay |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
}
