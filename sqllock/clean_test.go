package sqllock

import (
	"testing"
	"time"
)

// A client cleans on while it finds what to remove, and leaves it to others when they are
// quicker.
func TestPauseAfter(t *testing.T) {
	const took = 10 * time.Millisecond
	for name, c := range map[string]struct {
		page cleaned
		soon bool
	}{
		"all removed":           {cleaned{next: "x", idle: 500, removed: 500}, true},
		"some were used since":  {cleaned{next: "x", idle: 500, removed: 400}, true},
		"nothing to remove":     {cleaned{next: "x"}, true},
		"others were quicker":   {cleaned{next: "x", idle: 500, removed: 10}, false},
		"there is nothing more": {cleaned{idle: 400, removed: 400}, false},
	} {
		switch got := pauseAfter(c.page, took); {
		case c.soon && got != 4*took:
			t.Errorf("%s: the next page is cleaned after %v", name, got)
		case !c.soon && got < cleanEvery/2:
			t.Errorf("%s: the next page is cleaned after only %v", name, got)
		}
	}
}
