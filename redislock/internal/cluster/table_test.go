package cluster

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

func node3(host any, port any) []any { return []any{host, port, "id"} }

// TestParseTable: a server tells ranges of slots with their nodes; what is malformed is refused.
func TestParseTable(t *testing.T) {
	t.Parallel()
	good := []any{
		[]any{int64(0), int64(99), node3("10.0.0.1", int64(7000)), node3("10.0.0.9", int64(7009))},
		[]any{int64(100), int64(slot.Count - 1), node3("", int64(7001))},
		[]any{int64(50), int64(60), node3("::1", int64(7002))},
	}
	table, err := parseTable("10.0.0.5:6379", wire.Reply{Value: good})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{0: "10.0.0.1:7000", 55: "[::1]:7002", 99: "10.0.0.1:7000", 100: "10.0.0.5:7001", slot.Count - 1: "10.0.0.5:7001"} {
		if got := table.of[n]; got != want {
			t.Errorf("slot %d is of %q, not %q", n, got, want)
		}
	}
	if want := []string{"10.0.0.1:7000", "10.0.0.5:7001", "[::1]:7002"}; !slices.Equal(table.owners, want) {
		t.Errorf("the owners are %v, not %v", table.owners, want)
	}
	for name, value := range map[string]any{
		"no list": "OK", "empty": []any{}, "no range": []any{"a"}, "no node": []any{[]any{int64(0), int64(1)}},
		"negative":    []any{[]any{int64(-1), int64(1), node3("h", int64(1))}},
		"beyond":      []any{[]any{int64(0), int64(slot.Count), node3("h", int64(1))}},
		"backwards":   []any{[]any{int64(2), int64(1), node3("h", int64(1))}},
		"port 0":      []any{[]any{int64(0), int64(1), node3("h", int64(0))}},
		"port 65536":  []any{[]any{int64(0), int64(1), node3("h", int64(65536))}},
		"unknown":     []any{[]any{int64(0), int64(1), node3("?", int64(1))}},
		"text ranges": []any{[]any{"0", "1", node3("h", int64(1))}},
	} {
		if _, err := parseTable("a:1", wire.Reply{Value: value}); err == nil {
			t.Errorf("%s: %v was taken for a table", name, value)
		}
	}
	refused := &wire.ServerError{Text: "This instance has cluster support disabled"}
	if _, err := parseTable("a:1", wire.Reply{Err: refused}); !errors.Is(err, refused) {
		t.Errorf("a refusal gives %v", err)
	}
}

// TestRedirected reads redirections, and takes nothing else for one.
func TestRedirected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]redirection{
		"MOVED 3999 127.0.0.1:6381": {"127.0.0.1:6381", false},
		"ASK 16383 [::1]:6381":      {"[::1]:6381", true},
		"MOVED 0 :6381":             {"asked:6381", false},
	} {
		if got, ok := redirected("asked:1", &wire.Reply{Err: &wire.ServerError{Text: text}}); !ok || got != want {
			t.Errorf("%q is %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"MOVED", "MOVED 1", "MOVED 1 h", "MOVED 1 h:1 more", "WRONGTYPE 1 h:1",
	} {
		if got, ok := redirected("asked:1", &wire.Reply{Err: &wire.ServerError{Text: text}}); ok {
			t.Errorf("%q was taken for the redirection %+v", text, got)
		}
	}
	if _, ok := redirected("asked:1", &wire.Reply{Err: errors.New("MOVED 1 h:1")}); ok {
		t.Error("an error of the network was taken for a redirection")
	}
}
