package fence

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// TestGuard: each refusal matches the error that says what the client can do about it.
func TestGuard(t *testing.T) {
	var answer error
	g := Guard{Check: func(context.Context, string) error { return answer }}
	for i, step := range []struct {
		text   string
		use    Use
		answer error
		want   error
	}{
		{"42", Use{}, nil, ErrInvalid},
		{sequencer("a", driver.Slot, 1), Use{}, nil, ErrInvalid},
		{sequencer("a", exclusive, 0), Use{}, nil, ErrNoToken},
		{sequencer("a", exclusive, 1), Use{Name: "b", Named: true}, nil, ErrWrongHold},
		{sequencer("a", exclusive, 1), Use{Named: true}, nil, ErrWrongHold},
		{sequencer("a", shared, 1), Use{Name: "a", Named: true}, nil, ErrWrongHold},
		{sequencer("a", exclusive, 1), Use{}, driver.ErrNotHeld, ErrStale},
		{sequencer("a", exclusive, 1), Use{}, driver.ErrUncertain, ErrUnchecked},
		{sequencer("a", exclusive, 2), Use{Name: "a", Named: true}, nil, nil},
		{sequencer("a", exclusive, 1), Use{}, nil, ErrStale},
		{sequencer("a", shared, 3), Use{Reads: true}, nil, nil},
	} {
		answer = step.answer
		s, err := g.Admit(t.Context(), step.text, step.use)
		if !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
		if err == nil && s.String() != step.text {
			t.Errorf("step %d: the sequencer is %v, not %s", i, s, step.text)
		}
	}
	if s, ok := FromContext(NewContext(t.Context(), driver.Sequencer{Name: "a"})); !ok || s.Name != "a" {
		t.Errorf("the context has %v, %v", s, ok)
	}
}
