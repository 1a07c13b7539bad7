package zk

import "testing"

// TestNotDone: every code that a leader commits as a refusal says that nothing was done, and what a server may
// answer after it has committed something does not.
func TestNotDone(t *testing.T) {
	for code := Code(-200); code <= 0; code++ {
		if code != 0 && committed(code) && !code.NotDone() {
			t.Errorf("%v: a committed refusal may have been done", code)
		}
	}
	for _, code := range []Code{
		SystemError, DataInconsistency, ServerConnectionLoss, MarshallingError, OperationTimeout, APIError,
		SessionExpired, SessionMoved, RequestTimeout, -1000,
	} {
		if code.NotDone() {
			t.Errorf("%v certainly says that nothing was done", code)
		}
	}
	for _, code := range []Code{BadArguments, QuotaExceeded, ThrottledOp, RuntimeInconsistency} {
		if !code.NotDone() {
			t.Errorf("%v may have been done", code)
		}
	}
}
