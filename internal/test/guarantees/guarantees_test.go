package guarantees

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

type queue struct {
	driver.Driver
	driver.Queuer
}

type operator struct {
	driver.Driver
	driver.Operator
	driver.Downgrader
}

// two are stores as unlike as can be.
func two() []Store {
	return []Store{
		{Package: "onelock", URL: "one://host", Driver: queue{}, Caps: driver.Caps{
			Fencing: true, Slots: true,
			MinTTL: time.Second, MaxTTL: time.Hour, Poll: 2 * time.Second,
			Guarantees: driver.Guarantees{
				Summary: "A summary.", Tokens: "A counter.", Lateness: 3 * time.Second,
				Faults: map[driver.Fault]driver.Verdict{
					driver.ClientPause: {Exclusion: driver.Breaks, Tokens: driver.Keeps, Note: "a | b\nc"},
					driver.DiskFull:    {Exclusion: driver.Breaks, Tokens: driver.Delays},
				},
			},
		}},
		{Package: "twolock", URL: "two://", Driver: operator{}, Caps: driver.Caps{Shared: true, Fair: true}},
	}
}

func TestRender(t *testing.T) {
	stores := two()
	crash := driver.Verdict{Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "ends"}
	stores[0].Caps.Guarantees.Faults[driver.ClientCrash] = crash
	for _, name := range []string{"threelock", "fourlock"} {
		s := stores[0]
		s.Package = name
		stores = append(stores, s)
	}
	variant := stores[0]
	variant.With = "x=1"
	variant.Caps.Guarantees.Tokens = "None."
	variant.Caps.Guarantees.Faults = maps.Clone(variant.Caps.Guarantees.Faults)
	variant.Caps.Guarantees.Faults[driver.DiskFull] = crash
	variant.Caps.Guarantees.Faults[driver.ClientPause] = driver.Verdict{Exclusion: driver.Breaks, Tokens: driver.Breaks, Note: "a | b\nc"}
	variant.Caps.Guarantees.Faults[driver.Failover] = crash
	got := string(Render(append(stores, variant)))
	for _, line := range []string{
		"| [onelock](#onelock) | yes | no | no | yes | yes | no | no | no | no | 1s to 1h0m0s | 2s | 3s |",
		"| [twolock](#twolock) | no | yes | yes | no | no | no | yes | yes | no | any | 1s | 0s |",
		"| client crash | the holder's process is killed, or its host dies | kept | kept | ends |", // said once: three have it
		"## onelock", "A summary. **Tokens**: A counter.",
		"| client suspend, partition, late replies, store pause, store restart, store memory lost, fail-over, store clock forward, store clock backward | unstated | unstated |  |", // what is not said is not made up
		"## onelock, x=1", "As [onelock](#onelock), except: **Tokens**: None.",
		"| client pause | can break | can break | the same |", "| fail-over, disk full | kept | kept | ends |",
	} {
		if strings.Count(got, "\n"+line+"\n") == 0 {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	if !strings.Contains(got, `asking does not help | can break | kept | a \| b c |`) {
		t.Errorf("a pause is not what three stores say in\n%s", got)
	}
	if n := strings.Count(got, "| kept | kept | ends |"); n != 2 {
		t.Errorf("%d rows say that a hold ends, want one for all and one of the variant", n)
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
	got, err := Splice([]byte("a\n"+begin+"old\n"+end+"\nb"), "stores", []byte("new\n"))
	if want := "a\n" + begin + "new\n" + end + "\nb"; err != nil || string(got) != want {
		t.Errorf("spliced: %q, %v", got, err)
	}
	again, err := Splice(got, "stores", []byte("new\n"))
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("spliced again: %q, %v", again, err)
	}
	other, err := Splice([]byte(begin+end+"<!-- risks:begin -->\nold<!-- risks:end -->"), "risks", []byte("new"))
	if want := begin + end + "<!-- risks:begin -->\nnew<!-- risks:end -->"; err != nil || string(other) != want {
		t.Errorf("another part: %q, %v", other, err)
	}
	for _, bad := range []string{"", begin, end, end + begin, begin + end + begin, begin + end + end} {
		if got, err := Splice([]byte(bad), "stores", nil); err == nil {
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
