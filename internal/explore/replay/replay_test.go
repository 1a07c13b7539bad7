package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/engine"
	"github.com/holdfastlock/holdfast/internal/lease"
)

// TestReplayFinds: a log that says something else than the engine does is found out.
func TestReplayFinds(t *testing.T) {
	record := func() *Log {
		e := engine.New(engine.Config{
			Silent: true, Poll: time.Second, Queue: true,
			NewOwner: func() string { return "me" },
			Jitter:   func(d time.Duration) time.Duration { return d },
		})
		l := Record(e)
		var c engine.Caller
		terms := engine.Terms{TTL: time.Minute, RenewEvery: time.Second}
		c.Init("n", &engine.Settings{Terms: terms, Pace: lease.Pace{TTL: terms.TTL, Every: terms.RenewEvery}}, false, nil)
		next := e.Step(&engine.Event{Kind: engine.Entered, Caller: &c})
		e.Effects()
		grant := driver.Grant{Request: next.Grant.Request, Token: 1, Valid: time.Minute}
		e.Step(&engine.Event{Kind: engine.Answered, Caller: &c, Grant: grant})
		e.Effects()
		e.Step(&engine.Event{Kind: engine.Ticked, Now: driver.Instant(2 * time.Second)})
		e.Effects()
		return l
	}
	for _, c := range []struct {
		name   string
		change func(*Log)
		want   string
	}{
		{"nothing", func(*Log) {}, ""},
		{"another action", func(l *Log) { l.steps[0].action.Do = engine.Enqueue }, "step 1 of 3"},
		{"another owner", func(l *Log) { l.owners[0] = "another" }, "step 1 of 3"},
		{"an effect that is gone", func(l *Log) { l.steps[2].effects = nil }, "step 3 of 3"},
		{"another batch", func(l *Log) { l.steps[2].effects[0].Batch.Grants[0].Token = 7 }, "step 3 of 3"},
	} {
		l := record()
		c.change(l)
		err := l.Replay()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
