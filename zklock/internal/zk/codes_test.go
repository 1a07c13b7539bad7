package zk

import "testing"

// TestNotDone: every code that a leader commits as a refusal says that nothing was done, and what a server may
// answer after it has committed something does not.
func TestNotDone(t *testing.T) {
	for code := Code(-200); code < 0; code++ {
		if committed(code) && !code.NotDone() {
			t.Errorf("%v: a committed refusal may have been done", code)
		}
	}
	for _, code := range []Code{-1, -3, -4, -5, -7, -100, SessionExpired, SessionMoved, -122, -1000} {
		if code.NotDone() {
			t.Errorf("%v certainly says that nothing was done", code)
		}
	}
}
