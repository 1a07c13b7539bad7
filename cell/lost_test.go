package cell

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"connectrpc.com/connect"
)

// TestLostCallStaysUncertain: the answer of one member was lost, and no other one can be reached. What the
// first has done is not known, although the second call was not sent (P6).
func TestLostCallStaysUncertain(t *testing.T) {
	c, err := New(Config{Members: []string{"a:1", "b:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	calls := 0
	err = c.Do(t.Context(), true, func(context.Context, *Member) error {
		if calls++; calls == 1 {
			return errors.New("the connection broke")
		}
		return &net.OpError{Op: "dial", Err: errors.New("refused")}
	})
	if calls != 2 || Certain(err) {
		t.Errorf("after %d calls, of which the first was lost, nothing may have been done for certain: %v", calls, err)
	}
}

// late is a context whose deadline has passed and whose timer has not run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestMemberIsQuickerThanTheTimer: a member, which is told of the deadline, ends the call before the client's own timer has
// run. The caller's deadline is over all the same.
func TestMemberIsQuickerThanTheTimer(t *testing.T) {
	c, err := New(Config{Members: []string{"a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := connect.NewError(connect.CodeCanceled, errors.New("context deadline exceeded"))
	err = c.Do(late{t.Context()}, false, func(context.Context, *Member) error { return ended })
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ended) {
		t.Errorf("a call that a member has ended at its deadline: %v", err)
	}
}
