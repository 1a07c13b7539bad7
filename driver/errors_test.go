package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestHeldError(t *testing.T) {
	for _, c := range []struct {
		err  HeldError
		want string
	}{
		{HeldError{}, "held by another"},
		{HeldError{Name: "orders/42", Queued: 2, ExpiresIn: time.Second}, "held by another"},
		{HeldError{Token: 7}, "held by another"},
		{HeldError{Note: "till 3"}, `held by another ("till 3")`},
		{HeldError{Note: "till\n3", Token: 7}, `held by another ("till\n3", token 7)`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%#v says %q, want %q", c.err, got, c.want)
		}
		wrapped := fmt.Errorf("x: %w", &c.err)
		if !errors.Is(wrapped, ErrHeld) || errors.Is(wrapped, ErrNotHeld) {
			t.Errorf("%#v does not match ErrHeld alone", c.err)
		}
		if found, ok := errors.AsType[*HeldError](wrapped); !ok || *found != c.err {
			t.Errorf("%#v is found as %#v", c.err, found)
		}
	}
}

func TestGone(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{ErrNotHeld, true},
		{fmt.Errorf("x: %w", ErrBroken), true},
		{errors.Join(context.Canceled, ErrNotHeld), true},
		{ErrHeld, false},
		{ErrUncertain, false},
		{ErrClosed, false},
		{context.DeadlineExceeded, false},
	} {
		if got := Gone(c.err); got != c.want {
			t.Errorf("Gone(%v) is %t", c.err, got)
		}
	}
}

func TestUncertain(t *testing.T) {
	err := Uncertain(context.DeadlineExceeded)
	if !errors.Is(err, ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) || Gone(err) {
		t.Errorf("%v is not both what it was and uncertain", err)
	}
	if want := "outcome unknown: context deadline exceeded"; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
}
