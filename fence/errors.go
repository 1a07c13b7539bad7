package fence

import (
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// The errors of a refusal. Match them with errors.Is.
var (
	// ErrStale: a newer hold has used the resource. The work must not be retried under the same hold. Detail is
	// in a *StaleError.
	ErrStale = errors.New("stale fencing token")
	// ErrNoToken: the token is 0, which means that the lock's store gives none. Such a lock cannot be fenced.
	ErrNoToken = errors.New("no fencing token: the lock's store gives none, so its holds cannot be fenced")
	// ErrInvalid: the token, the mode or the resource's name can never be admitted, whatever the marks are.
	ErrInvalid = errors.New("cannot be fenced")
)

// StaleError is ErrStale with its details.
type StaleError struct {
	Resource string       // empty for a [Gate], which does not know its name
	Token    driver.Token // the token that was refused
	Mode     driver.Mode  // its mode
	Mark     driver.Token // the newer token that has used the resource; 0: not known
}

// Error says which token was refused and why.
func (e *StaleError) Error() string {
	text := fmt.Sprintf("%v: %v token %d", ErrStale, e.Mode, e.Token)
	if e.Resource != "" {
		text += fmt.Sprintf(" of %q", e.Resource)
	}
	if e.Mark == 0 {
		return text + " was not admitted"
	}
	return text + fmt.Sprintf(" is below %d, which has used the resource since", e.Mark)
}

// Is makes a StaleError match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// maxToken is the highest possible token (see [driver.Token]). A higher number is a mistake, for example a
// time in nanoseconds, and would close the resource for ever if it were adopted.
const maxToken = driver.Token(1<<53 - 1)

// checkToken returns an error if the token can never be admitted in the mode.
func checkToken(token driver.Token, mode driver.Mode) error {
	switch {
	case mode == driver.Slot:
		return fmt.Errorf("the hold of a semaphore %w: several exist at once and none of them excludes another", ErrInvalid)
	case mode != driver.Exclusive && mode != driver.Shared:
		return fmt.Errorf("a hold of mode %d %w: the modes are exclusive and shared", uint8(mode), ErrInvalid)
	case token == 0:
		return ErrNoToken
	case token < 0 || token > maxToken:
		return fmt.Errorf("token %d %w: tokens are 1 to %d", token, ErrInvalid, maxToken)
	}
	return nil
}

// checkUse is checkToken for a resource that has a name. The rules for names are those of locks (P10).
func checkUse(resource string, token driver.Token, mode driver.Mode) error {
	if err := driver.CheckName(resource); err != nil {
		return fmt.Errorf("resource %w: %w", ErrInvalid, err)
	}
	return checkToken(token, mode)
}
