package quorum

import (
	"testing"
	"time"
)

// TestPace: waiters ask after some attempts' time, which grows while attempts split the votes, up to the poll.
func TestPace(t *testing.T) {
	const longest = 100 * time.Millisecond
	var p pace
	if got := p.poll(longest); got != shortestPoll {
		t.Errorf("with nothing known the pause is %v", got)
	}
	note := func(took time.Duration, split bool) time.Duration {
		for range 100 {
			p.note(took, split)
		}
		return p.poll(longest)
	}
	alone := note(500*time.Microsecond, false)
	if want := usualPause * 500 * time.Microsecond; alone < want*9/10 || alone > want {
		t.Errorf("after attempts of 0.5 ms the pause is %v, want about %v", alone, want)
	}
	if crowd := note(500*time.Microsecond, true); crowd < 3*alone || crowd > longest {
		t.Errorf("when all attempts split the votes the pause is %v, and %v when none does", crowd, alone)
	}
	if calm := note(500*time.Microsecond, false); calm > 2*alone {
		t.Errorf("when none splits them any more the pause is %v", calm)
	}
	if slow := note(time.Second, true); slow != longest {
		t.Errorf("the pause is %v, longer or shorter than the poll", slow)
	}
}
