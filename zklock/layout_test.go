package zklock

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

const someone = "_c_0123abcd-0123-4567-89ab-0123456789ab-"

func TestParseEntry(t *testing.T) {
	for name, want := range map[string]entry{
		someone + "lock-0000000007":                           {stem: stemLock, seq: 7},
		someone + "lock-2147483647":                           {stem: stemLock, seq: math.MaxInt32},
		someone + "lock--2147483648":                          {stem: stemLock, seq: math.MinInt32},
		someone + "lock--000000001":                           {stem: stemLock, seq: -1},
		someone + "__WRIT__0000000001":                        {stem: stemWrite, seq: 1},
		someone + "__WRIT__-2147483647":                       {stem: stemWrite, seq: -2147483647},
		someone + "__READ__0000000001":                        {stem: stemRead, seq: 1},
		someone + "lease-0000000000":                          {stem: stemLease, seq: 0},
		someone + "latch-0000000003":                          {stem: stemLatch, seq: 3},
		"_c_0123abcd0123456789ab0123456789ab-lock-0000000001": {stem: stemLock, seq: 1}, // of go-zookeeper
		"lock-0000000001":                                     {stem: stemLock, seq: 1},
	} {
		got, ok := parseEntry(name)
		if !ok || got.stem != want.stem || got.seq != want.seq || got.name != name {
			t.Errorf("%q is read as %+v, %v", name, got, ok)
		}
		if path := name[:len(name)-len(got.digits())]; !strings.HasSuffix(path, got.stem) {
			t.Errorf("the number of %q is %q", name, got.digits())
		}
	}
	for _, name := range []string{
		"", "orders", "42", "0000000042", "lock-", "lock-7", "lock-000000007", "lock-00000000007", "lock-2147483648",
		"lock--2147483649", "lock--0000000001", "lock-0000000007x", "lock_0000000007", "__READ__-", "lease-+000000001", "locks", "leases",
	} {
		if got, ok := parseEntry(name); ok {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
}

func TestOwner(t *testing.T) {
	const hexes = "0123abcd0123456789ab0123456789ab"
	if got := guidOf(hexes); got != someone {
		t.Errorf("the nodes of an owner of 32 digits begin with %q, not %q", got, someone)
	}
	for name, want := range map[string]string{
		someone + "lock-0000000007":           hexes,
		"_c_" + hexes + "-__READ__0000000001": hexes,
		"lock-0000000001":                     "lock-0000000001",
		"_c_x-lock-0000000001":                "_c_x-lock-0000000001",
	} {
		if e, ok := parseEntry(name); !ok || e.owner() != want {
			t.Errorf("the owner of %q is shown as %q, not %q", name, e.owner(), want)
		}
	}
	seen := map[string]string{}
	for _, owner := range []string{"", "a", "b", hexes, strings.ToUpper(hexes), hexes + "0", hexes[1:], strings.Repeat("g", 32), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		g := guidOf(owner)
		if other, dup := seen[g]; dup || len(g) != len(someone) || strings.Count(g, "-") != 5 {
			t.Errorf("owners %q and %q have the GUID %q", owner, other, g)
		}
		seen[g] = owner
	}
}

// TestOrder: entries are in the order in which the server has made them, also where its number wraps from
// 2^31-1 to -2^31, and where a downgraded hold has the writer's number.
func TestOrder(t *testing.T) {
	for _, want := range [][]string{
		{"a-lock-0000000001", "z-lock-0000000002", "b-lock-0000000010"},
		{"b-__WRIT__0000000001", "a-__READ__0000000002", "c-lock-0000000003"},
		{"a-lock-2147483646", "a-lock-2147483647", "a-lock--2147483648", "a-lock--2147483647"},
		{"a-__READ__2147483647", "b-__WRIT__-2147483648", "c-__READ__-2147483647"},
		{"a-lock--000000001", "a-lock-0000000000", "a-lock-0000000001"},
		{"b-__WRIT__0000000005", "a-__READ__0000000005", "a-__READ__0000000006"},
		{"a-__READ__0000000005", "b-__READ__0000000005"},
	} {
		shuffled := slices.Clone(want)
		slices.Reverse(shuffled)
		var got []string
		for _, e := range parseChildren(append(shuffled, "orders", "42", "lockssmith")).entries {
			got = append(got, e.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the order is %q, not %q", got, want)
		}
	}
}

func TestBlockers(t *testing.T) {
	for _, c := range []struct {
		names   []string // in order; the last is the request's own
		mode    driver.Mode
		blocker string
		holders int
	}{
		{[]string{"a-lock-0000000001"}, driver.Exclusive, "", 1},
		{[]string{"a-lock-0000000001", "b-lock-0000000002"}, driver.Exclusive, "a-lock-0000000001", 1},
		{[]string{"a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"}, driver.Exclusive, "b-lock-0000000002", 1},
		{[]string{"a-__READ__0000000001", "b-__READ__0000000002"}, driver.Shared, "", 2},
		{[]string{"a-__READ__0000000001", "b-__WRIT__0000000002"}, driver.Exclusive, "a-__READ__0000000001", 1},
		{[]string{"a-__WRIT__0000000001", "b-__WRIT__0000000002", "c-__READ__0000000003", "d-__READ__0000000004"}, driver.Shared, "b-__WRIT__0000000002", 1},
		{[]string{"a-__READ__0000000001", "b-__READ__0000000002", "c-__WRIT__0000000003"}, driver.Exclusive, "b-__READ__0000000002", 2},
		{[]string{"a-lock-0000000001", "b-__READ__0000000002"}, driver.Shared, "a-lock-0000000001", 1},
		// A downgraded hold, and who waits behind it with the next number.
		{[]string{"a-__READ__0000000001", "b-__WRIT__0000000002"}, driver.Exclusive, "a-__READ__0000000001", 1},
		// Java downgrades in two steps: meanwhile both nodes have one number.
		{[]string{"a-__WRIT__0000000001", "a-__READ__0000000001", "b-__READ__0000000002"}, driver.Shared, "a-__WRIT__0000000001", 1},
	} {
		entries := parseChildren(c.names).entries
		ahead, err := before(entries, c.names[len(c.names)-1])
		must(t, err)
		got := blocker(ahead, c.mode)
		if got != c.blocker || holders(entries) != c.holders {
			t.Errorf("%q: the last waits for %q, and %d hold; want %q and %d", c.names, got, holders(entries), c.blocker, c.holders)
		}
	}
	if _, err := before(nil, "a-lock-0000000001"); err == nil {
		t.Error("a node that is not there has a place")
	}
}

func TestNames(t *testing.T) {
	root, below := layout{}, layout{prefix: "/app"}
	for _, name := range []string{
		"a", "orders/42", "a b", "é", "日本", "lock", "lock/holder", "locks", "leases", "locks/a", "a/locks/b", "a/leases/b/c", "x/lock-1", "...", ".a", "a/zookeeper", "%2F", "{a}",
		"\u00a0", "\u202e", "\ufeff", "lock-x/0000000001", strings.Repeat("x", driver.MaxName),
	} {
		for _, l := range []layout{root, below} {
			if err := l.checkName(name); err != nil {
				t.Errorf("name %q is refused: %v", name, err)
			}
		}
	}
	for _, name := range []string{
		"", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "./a", "\x00", "\x1f", "\x7f", "\u0080", "\u009f", "\ue000", "\uf8ff", "\ufff0", "\ufffd", "\uffff", "🔒",
		"\U0010ffff", "\xff", "a/locks", "a/leases", ".holdfast", "a/.holdfast/b", "a-lock-0000000001", "x/" + someone + "__READ__0000000001/y", "block-0000000001",
	} {
		if err := below.checkName(name); err == nil {
			t.Errorf("name %q is not refused", name)
		}
	}
	for _, name := range []string{"zookeeper", "zookeeper/quota"} {
		if !errors.Is(root.checkName(name), driver.ErrUnsupported) || below.checkName(name) != nil {
			t.Errorf("name %q: %v at the root, %v below a prefix", name, root.checkName(name), below.checkName(name))
		}
	}
}

func TestData(t *testing.T) {
	for _, note := range []string{"", "a note", "token 5", "é"} {
		if got, token := parseData([]byte(note)); got != note || token != 0 {
			t.Errorf("%q is read as %q, %d", note, got, token)
		}
		if got, token := parseData(downgradedData(note, 42)); got != note || token != 42 {
			t.Errorf("%q with a token is read as %q, %d", note, got, token)
		}
	}
	for _, data := range []string{"a\ntoken 0", "a\ntoken -1", "a\ntoken 9007199254740992", "a\ntoken x", "a\ntoken 1\n"} {
		if got, token := parseData([]byte(data)); got != data || token != 0 {
			t.Errorf("%q is read as %q, %d", data, got, token)
		}
	}
}
