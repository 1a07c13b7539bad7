package drivertest

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
)

// namesCases are about names that a store may confuse, fold or take for a pattern (P10).
var namesCases = []testCase{
	{name: "awkward names are kept apart", run: func(t *trial, a, b driver.Driver) {
		grants := t.takeAwkward(a)
		each(t.awkward(), func(name string) {
			t.refused(b, named(t.request(), name), "P1: the awkward name "+name+" was granted twice")
		})
		for i, r := range t.renewals(a, grants...) {
			if r.Err != nil {
				t.Errorf("P2: renewing a hold on name %q failed: %v", grants[i].Name, r.Err)
			}
		}
		for i, err := range t.releases(a, grants...) {
			if err != nil {
				t.Errorf("P4: releasing a hold on name %q failed: %v", grants[i].Name, err)
			}
		}
	}},
	{name: "awkward names are shown as they are", need: opOperator, run: func(t *trial, a, b driver.Driver) {
		want := map[string]string{} // owner by name
		for _, g := range t.takeAwkward(a) {
			want[g.Name] = g.Owner
		}
		seen := map[string]int{}
		for _, info := range t.list(b, t.name) {
			seen[info.Name]++
		}
		if len(seen) != len(want) {
			t.Errorf("P10: List shows %d names, not %d", len(seen), len(want))
		}
		each(t.awkward(), func(name string) {
			if seen[name] != 1 {
				t.Errorf("P10: List shows the held name %q %d times", name, seen[name])
			}
			info, err := ops(b).Inspect(t.ctx, name)
			if err != nil || info.Name != name || len(info.Holders) != 1 || info.Holders[0].Owner != want[name] {
				t.Errorf("P10: Inspect of the held name %q shows %+v, %v", name, info, err)
			}
		})
	}},
	{name: "awkward names are refused before they are asked for", run: func(t *trial, a, _ driver.Driver) {
		for _, name := range t.allAwkward() {
			if !t.refuses(name) {
				continue
			}
			g, err := a.Try(t.ctx, named(t.request(), name))
			if err == nil {
				t.release(a, g)
			}
			if err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUncertain) {
				t.Errorf("P10: the name %q, which the driver refuses, was asked for: %v", name, err)
			}
		}
	}},
	{name: "awkward names queue", need: opQueue, run: func(t *trial, a, b driver.Driver) {
		for _, name := range t.awkward() {
			if len(name) > len(t.name)+6 && len(name) < driver.MaxName-1 {
				continue // the short names and the longest are enough here
			}
			g, w := t.take(a, named(t.request(), name)), named(t.request(), name)
			t.queued(b, w)
			t.release(a, g)
			t.release(b, t.arrives(b, w, "P7: a waiter for name "+name+" was not granted it"))
		}
	}},
	{name: "a prefix is not a pattern", need: opOperator, run: func(t *trial, a, _ driver.Driver) {
		for _, tail := range []string{"/abc", "/a*c", "/a%c", "/a_c", "/a[b]c", "/a?c", `/a\c`, "/A*c"} {
			t.take(a, named(t.request(), t.name+tail))
		}
		for prefix, want := range map[string]int{
			"/": 8, "/a": 7, "/A": 1, "/a*": 1, "/a%": 1, "/a_": 1, "/a[": 1, "/a[b]": 1, "/a?": 1, `/a\`: 1,
			"/b": 0, "/*": 0, "/%": 0, "/abc/": 0,
		} {
			if got := t.list(a, t.name+prefix); len(got) != want {
				t.Errorf("P10: List of prefix %q shows %d names, not %d: %+v", prefix, len(got), want, got)
			}
		}
		for _, err := range ops(a).List(t.ctx, t.name) { // and can be stopped
			if err != nil {
				t.Errorf("P9: List: %v", err)
			}
			break
		}
		t.freeNow(a, t.request(), "P9: a List that was stopped left the driver stuck")
	}},
}

// allAwkward returns names that stores and their client libraries may confuse: with every printable ASCII character,
// names that look or sort alike, escapes, patterns, paths, the first and last characters of UTF-8, and the longest
// name. All begin with the case's name.
func (t *trial) allAwkward() []string {
	tails := []string{
		"a", "A", "a ", " a", "a/a", "a/A", "a%2Fa", "a%2fa", `a\a`, "a:a", "a-a", "a_a", "a.a", "a+a", "a%20a", "a a",
		".", "..", "...", "./a", "../a", "a/..", "a/.", ".a", "~", "-", "--", "0", "00", "-1", "1e3", "null", "NULL", "true",
		"{a}", "{}", "}{", "[a]", "a*", "a?", "*", "?", "a%", "a_", "%", "%%", "%s", "%!s", "$1", "${a}", "$$", "'", "''", `"`, `\`, `\\`, "\\x00", "`",
		"a;b", "a--b", "a#b", "a&b", "a=b", "a,b", "a|b", "<a>", "a@b", "a^b", "(a)", "!a", "a\u00a0b", "a\u2028b",
		"é", "e\u0301", "É", "ß", "ss", "SS", "ſ", "İ", "ı", "i", "I", "Ａ", "µ", "μ", "日本", "🔒", "\u202eabc", "\ufeff", "\ufffd", "\u200d", "\U0010ffff", "\u00ad",
		"lock", "lock:token", "lock:queue", "lock/holder", "lock.tmp", "lock~", "lock/0000000001",
	}
	var names []string
	for _, tail := range tails {
		names = append(names, t.name+"/"+tail)
	}
	for c := byte(0x20); c < 0x7f; c++ {
		if c != '/' {
			names = append(names, t.name+"/c"+string(rune(c)))
		}
	}
	long := t.name + "/" + strings.Repeat("x", driver.MaxName-len(t.name)-2)
	wide := t.name + "/" + strings.Repeat("é", (driver.MaxName-len(t.name)-1)/2)
	return append(names, long+"1", long+"2", long, wide, t.name)
}

func (t *trial) refuses(name string) bool { return t.h.Refuses != nil && t.h.Refuses(name) }

// awkward returns all of those names that the driver takes.
func (t *trial) awkward() []string { return slices.DeleteFunc(t.allAwkward(), t.refuses) }

// each calls a function with every name, with several at the same time: there are many names, a store may be far
// away, and the holds, which are not renewed, must not expire.
func each(names []string, do func(name string)) {
	const atOnce = 8
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for n := i; n < len(names); n += atOnce {
				do(names[n])
			}
		})
	}
	all.Wait()
}

// takeAwkward takes a hold on each awkward name.
func (t *trial) takeAwkward(d driver.Driver) []driver.Grant {
	var mu sync.Mutex
	var grants []driver.Grant
	each(t.awkward(), func(name string) {
		g, err := t.try1(d, named(t.request(), name))
		if err != nil {
			t.Errorf("P10: name %q is allowed (%v) and free, and Try returned: %v", name, driver.CheckName(name), err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		grants = append(grants, g)
	})
	return grants
}
