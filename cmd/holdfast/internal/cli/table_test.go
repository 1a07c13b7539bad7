package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
)

func TestTableFits(t *testing.T) {
	tab := &table{columns: []column{{title: "NAME", shrinks: true}, {title: "HELD"}, {title: "NOTE", shrinks: true, drop: 1}, {title: "TOKEN", drop: 2}}}
	tab.add("a-long-name-that-is-cut", "exclusive", strings.Repeat("日本", 10), "1234567890123456")
	tab.add("b", "shared", "-", "7")
	for width := 0; width < 120; width++ {
		var b strings.Builder
		if err := tab.write(&b, width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 3 {
			t.Fatalf("width %d:\n%s", width, b.String())
		}
		for _, line := range lines {
			// HELD, 9 wide, is always there, and NAME is at least 1.
			if n := runewidth.StringWidth(line); width > 0 && n > max(width, 12) {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
		if whole := strings.Contains(b.String(), "…"); width == 0 && whole {
			t.Errorf("without a limit something is cut:\n%s", b.String())
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1234 * time.Millisecond: "1.2s", 59*time.Second + 600*time.Millisecond: "1m0s",
		61 * time.Minute: "1h01m", 47 * time.Hour: "47h00m", 50 * time.Hour: "2d02h",
	} {
		if got := durationText(d); got != want {
			t.Errorf("durationText(%v) = %s, want %s", d, got, want)
		}
	}
}
