package sqllock

import (
	"testing"
	"time"
)

// TestPausesOfCrowd: where each of 200 waiters in SQLite is a process, their polls leave the processors to
// the holder, also when nothing changes.
func TestPausesOfCrowd(t *testing.T) {
	now := time.Now()
	perSecond := 0.0
	for ahead := range 200 {
		s := pollState{ahead: ahead, changed: now.Add(-time.Minute), polled: now}
		perSecond += float64(time.Second) / float64(s.pause(pauses[SQLite], now))
	}
	if perSecond > 4000 {
		t.Errorf("they poll %.0f times a second", perSecond)
	}
}
