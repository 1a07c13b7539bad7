package cli

import (
	"errors"
	"testing"
)

// TestOneLine: several errors are one line, escaped, without our prefix.
func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("holdfast: first"), errors.New("holdfast: second:\n\x1b"))
	if got := oneLine(err); got != `first; second: \x1b` {
		t.Errorf("oneLine: %s", got)
	}
}
