package wire

import (
	"errors"
	"testing"
)

// TestDemoted: a server's word that it is a replica is heard in each form, and in nothing else.
func TestDemoted(t *testing.T) {
	t.Parallel()
	refusal := func(text string) Reply { return Reply{Err: &ServerError{Text: text}} }
	for _, r := range []Reply{
		refusal("READONLY You can't write against a read only replica."),
		refusal("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
		refusal("Error running script (call to f_0): @user_script:12: -READONLY You can't write against a read only slave."),
		{Value: []any{int64(0), "READONLY You can't write against a read only replica. script: 0, on @user_script:1."}},
	} {
		if !demoted(r) {
			t.Errorf("%+v is not heard", r)
		}
	}
	for _, r := range []Reply{
		{Value: "OK"}, {}, {Err: errors.New("READONLY You can't write")}, {Value: []any{int64(1), "READONLY is my note"}}, refusal("WRONGTYPE READONLY"),
	} {
		if demoted(r) {
			t.Errorf("%+v is taken for the word of a replica", r)
		}
	}
}
