package drivertest

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

var namesCases = []testCase{
	{name: "awkward names are kept apart", run: awkwardNames},
	{name: "awkward names are shown as they are", need: needs{can: opOperator},
		run: awkwardNamesShown},
	{name: "awkward names are refused before they are asked for", run: refusedNames},
	{name: "awkward names queue and break", need: needs{can: opQueue},
		run: awkwardNamesQueue},
	{name: "a prefix is not a pattern", need: needs{can: opOperator}, run: prefixIsNoPattern},
}

// allAwkward returns names that stores and their client libraries may confuse: with every
// printable ASCII character, names that look or sort alike, escapes, patterns, paths, the
// first and last characters of UTF-8, and the longest name. All begin with the case's name.
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

// awkward returns all of those names that the driver takes.
func (t *trial) awkward() []string {
	return slices.DeleteFunc(t.allAwkward(), t.refuses)
}

func (t *trial) refuses(name string) bool { return t.h.Refuses != nil && t.h.Refuses(name) }

// refusedNames asserts that the driver refuses what it says that it refuses, and nothing is known of
// it afterwards.
func refusedNames(t *trial) {
	d := t.open()
	for _, name := range t.allAwkward() {
		if !t.refuses(name) {
			continue
		}
		r := t.request()
		r.Name = name
		g, err := d.Try(t.ctx, r)
		switch {
		case err == nil:
			t.Errorf("P10: the name %q, which the driver refuses, was granted", name)
			t.release(d, g)
		case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrUncertain):
			t.Errorf("P10: the name %q, which the driver refuses, was asked for: %v", name, err)
		}
	}
}

// each calls a function with every name, with several at the same time: there are many
// names, a store may be far away, and the holds, which are not renewed, must not expire.
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

// takeAwkward takes a hold on each awkward name. The hold's note says which name it is of.
func (t *trial) takeAwkward(d driver.Driver) []driver.Grant {
	names := t.awkward()
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			t.Fatalf("P10: the suite uses a name that is not allowed: %v", err)
		}
	}
	var mu sync.Mutex
	var grants []driver.Grant
	each(names, func(name string) {
		r := t.request()
		r.Name = name
		r.Note = "note of " + strings.TrimPrefix(name, t.name)
		g, err := t.try1(d, r)
		if err != nil {
			t.Errorf("P10: name %q is allowed and free, and Try returned: %v", name, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		grants = append(grants, g)
	})
	return grants
}

func awkwardNames(t *trial) {
	a, b := t.open(), t.open()
	grants := t.takeAwkward(a)
	each(t.awkward(), func(name string) {
		r := t.request()
		r.Name = name
		t.refused(b, r, "P1: the awkward name "+name+" was granted twice")
	})
	for i, r := range a.Renew(t.ctx, grants) {
		if r.Err != nil {
			t.Errorf("P2: renewing a hold on name %q failed: %v", grants[i].Name, r.Err)
		}
	}
	for i, err := range a.Release(t.ctx, grants) {
		if err != nil {
			t.Errorf("P4: releasing a hold on name %q failed: %v", grants[i].Name, err)
		}
	}
}

func awkwardNamesShown(t *trial) {
	a, b := t.open(), t.open()
	want := map[string]string{} // owner by name
	for _, g := range t.takeAwkward(a) {
		want[g.Name] = g.Owner
	}
	seen := map[string]bool{}
	for _, info := range t.list(b, t.name) {
		if seen[info.Name] {
			t.Errorf("P10: List shows name %q twice", info.Name)
		}
		seen[info.Name] = true
		if _, ok := want[info.Name]; !ok {
			t.Errorf("P10: List shows name %q, which nobody uses", info.Name)
		}
	}
	each(t.awkward(), func(name string) {
		if !seen[name] {
			t.Errorf("P10: List does not show the held name %q", name)
		}
		info, err := wrap.Forward{Driver: b}.Inspect(t.ctx, name)
		if err != nil || info.Name != name || len(info.Holders) != 1 || info.Holders[0].Owner != want[name] {
			t.Errorf("P10: Inspect of the held name %q shows %+v, %v", name, info, err)
		}
	})
}

func awkwardNamesQueue(t *trial) {
	a, b := t.open(), t.open()
	for _, name := range t.awkward() {
		if len(name) > len(t.name)+6 && len(name) < driver.MaxName-1 {
			continue // the short names and the longest are enough here
		}
		r, w := t.request(), t.request()
		r.Name, w.Name = name, name
		g := t.take(a, r)
		t.queued(b, w)
		t.release(a, g)
		t.release(b, t.arrives(b, w, t.poll, "P7: a waiter for name "+name+" was not granted it"))
	}
}

func prefixIsNoPattern(t *trial) {
	d := t.open()
	for _, tail := range []string{"/abc", "/a*c", "/a%c", "/a_c", "/a[b]c", "/a?c", `/a\c`, "/A*c"} {
		r := t.request()
		r.Name += tail
		t.take(d, r)
	}
	for prefix, want := range map[string]int{
		"/": 8, "/a": 7, "/A": 1, "/a*": 1, "/a%": 1, "/a_": 1, "/a[": 1, "/a[b]": 1, "/a?": 1, `/a\`: 1, "/b": 0, "/*": 0, "/%": 0, "/abc/": 0,
	} {
		var got []string
		for _, info := range t.list(d, t.name+prefix) {
			got = append(got, info.Name)
		}
		if len(got) != want {
			t.Errorf("P10: List of prefix %q shows %d names, not %d: %q", prefix, len(got), want, got)
		}
	}
}
