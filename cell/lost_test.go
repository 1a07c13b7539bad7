package cell

import (
	"context"
	"errors"
	"net"
	"testing"
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
