package sqllock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPausesOfRetries: SQLite lets in the one that asks most often, so renewals and releases go on
// asking often, and others less and less.
func TestPausesOfRetries(t *testing.T) {
	for urgency := range priorities {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.WithValue(t.Context(), priorityKey{}, urgency)
			const attempts = 100
			start := time.Now()
			for attempt := range attempts {
				if !(&client{}).pause(ctx, attempt) {
					t.Fatal("the context has not ended")
				}
			}
			const each = 2 * time.Millisecond
			if took := time.Since(start); urgency <= releasing && took > attempts*each || urgency > releasing && took < 2*attempts*each {
				t.Errorf("priority %d: %d pauses take %v", urgency, attempts, took)
			}
		})
	}
}
