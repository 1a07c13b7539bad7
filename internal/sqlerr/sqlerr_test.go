package sqlerr

import (
	"errors"
	"fmt"
	"testing"
)

// The shapes of the libraries' errors. What the libraries themselves return is
// tried on real servers, in package internal/test/integration/dbtest.
type (
	stateful struct{ state string }
	numbered struct{ Number uint16 }
	coded    struct{ code int }
	byField  struct{ Code, ExtendedCode errNo }
	byMethod struct{ code errCode }
	asking   struct{}
	nothing  string
	empty    struct{ Number uint16 }
	errNo    int
	errCode  uint8
)

func (e *stateful) Error() string     { return e.state }
func (e *stateful) SQLState() string  { return e.state }
func (e *numbered) Error() string     { return "number" }
func (e *empty) Error() string        { return "empty" }
func (e *coded) Error() string        { return "code" }
func (e *coded) Code() int            { return e.code }
func (e byField) Error() string       { return "field" }
func (e *byMethod) Error() string     { return "method" }
func (e *byMethod) Code() errCode     { return e.code }
func (e *asking) Error() string       { return "asking" }
func (e *asking) Code(string) errCode { return 5 }
func (e nothing) Error() string       { return string(e) }

func TestConflict(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("40001"), false},
		{nothing("Error 1213"), false},
		{&stateful{"40001"}, true},
		{&stateful{"40P01"}, true},
		{&stateful{"55P03"}, true},
		{&stateful{"23505"}, false},
		{&stateful{"57014"}, false},
		{&numbered{1213}, true},
		{&numbered{1205}, true},
		{&numbered{3572}, true},
		{&numbered{1020}, true},
		{&numbered{1062}, false},
		{(*empty)(nil), false},
		{&coded{5}, true},
		{&coded{6}, true},
		{&coded{5 | 2<<8}, true}, // SQLITE_BUSY_SNAPSHOT
		{&coded{19}, false},
		{byField{5, 5}, true},
		{byField{1, 1}, false},
		{&byMethod{5}, true},
		{&byMethod{8}, false},
		{&asking{}, false},
		{fmt.Errorf("update: %w", &stateful{"40001"}), true},
		{errors.Join(errors.New("first"), fmt.Errorf("then: %w", &numbered{1213})), true},
		{errors.Join(errors.New("first"), &numbered{1062}), false},
	} {
		if got := Conflict(c.err); got != c.want {
			t.Errorf("Conflict(%#v) = %v, want %v", c.err, got, c.want)
		}
	}
}

// TestBusy: who can wait for the other is busy, who can never write any more is not.
func TestBusy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&coded{5}, true},
		{fmt.Errorf("update: %w", &coded{5 | 1<<8}), true}, // SQLITE_BUSY_RECOVERY
		{&coded{5 | 2<<8}, false},                          // SQLITE_BUSY_SNAPSHOT
		{byField{5, 5}, true},
		{byField{5, 5 | 2<<8}, false},
		{&coded{6}, false},
		{&numbered{5}, false},
		{nil, false},
	} {
		if got := Busy(c.err); got != c.want {
			t.Errorf("Busy(%#v) = %v, want %v", c.err, got, c.want)
		}
	}
}
