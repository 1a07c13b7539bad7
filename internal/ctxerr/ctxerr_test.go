package ctxerr

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// late is a context whose deadline has passed and whose timer has not run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func TestOf(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	library := os.ErrDeadlineExceeded // which is not context.DeadlineExceeded
	for what, c := range map[string]struct {
		ctx  context.Context
		err  error
		want error // beside err
	}{
		"a context that goes on":      {ctx: t.Context(), err: library},
		"a context that is cancelled": {ctx: cancelled, err: library, want: context.Canceled},
		"a deadline that has passed":  {ctx: late{t.Context()}, err: library, want: context.DeadlineExceeded},
	} {
		got := Of(c.ctx, c.err)
		if !errors.Is(got, c.err) || c.want != nil && !errors.Is(got, c.want) {
			t.Errorf("%s: %v", what, got)
		}
		if c.want == nil && got != c.err {
			t.Errorf("%s: %v is not the error itself", what, got)
		}
	}
	if err := Of(cancelled, nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
	if err := Of(cancelled, context.Canceled); err != context.Canceled {
		t.Errorf("what says it already: %v", err)
	}
}

func TestUnanswered(t *testing.T) {
	refused := errors.New("connection refused")
	err := error(&Unanswered{Ended: context.Canceled, Why: refused})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, refused) {
		t.Errorf("%v does not match all that it says", err)
	}
	if want := "context canceled: connection refused"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
}
