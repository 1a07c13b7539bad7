package redislock

import (
	"strings"
	"testing"
)

// TestKeys: keys give their names back, and all keys of a name have one hash
// tag, by the rule of Redis Cluster: what is between the first { and the first }
// after it.
func TestKeys(t *testing.T) {
	l := layout{"orders"}
	seen := map[string]bool{}
	for _, name := range []string{"a", "{a}", "{}", "}{", "{", "}", "a{b}c", "%7Ba%7D", "%", "%25", "é", "a:gone:b"} {
		record := l.record(name)
		if seen[record] {
			t.Errorf("two names have the key %q", record)
		}
		seen[record] = true
		if got, ok := l.name(record); got != name || !ok {
			t.Errorf("the key %q of name %q is that of %q, %v", record, name, got, ok)
		}
		_, tag, _ := strings.Cut(record, "{")
		tag, _, ok := strings.Cut(tag, "}")
		keys := l.keys(name)
		if keys[0] != record {
			t.Errorf("the first key of %q is %q, not its record %q", name, keys[0], record)
		}
		for _, key := range keys[1:] {
			if !ok || tag == "" || !strings.HasPrefix(key, "orders:{"+tag+"}:") {
				t.Errorf("keys %q and %q have no common tag", record, key)
			}
			if got, ok := l.name(key); ok || seen[key] {
				t.Errorf("%q is taken for the record of %q, or is a key of two", key, got)
			}
			seen[key] = true
		}
	}
	for _, key := range []string{"orders:store", "other:{a}", "orders:{a", "{a}"} {
		if got, ok := l.name(key); ok {
			t.Errorf("%q is taken for the record of %q", key, got)
		}
	}
}
