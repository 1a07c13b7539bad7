package driver

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sequencer names one hold so that a third party can check it: it is a lock's name, the mode and the token, as
// in the Chubby paper (Burrows, OSDI 2006, section 2.4). It is neither secret nor signed: it protects from
// mistakes, not from attackers.
type Sequencer struct {
	Name  string // as the store knows it, with the client's prefix
	Mode  Mode
	Token Token
}

// sequencerModes are the modes in a sequencer's text. They are a wire format.
const sequencerModes = "xsp"

// String returns the text form, for example "hf1:x:42:orders%2F42". It is printable ASCII without spaces, so
// that it fits an HTTP header or an environment variable. The letter is x for exclusive, s for shared, p for
// the permits of a semaphore; the name is escaped as url.QueryEscape does. A mode that does not exist is
// written as "?", which ParseSequencer refuses.
func (s Sequencer) String() string {
	letter := "?"
	if int(s.Mode) < len(sequencerModes) {
		letter = sequencerModes[s.Mode : s.Mode+1]
	}
	return "hf1:" + letter + ":" + strconv.FormatInt(int64(s.Token), 10) + ":" + url.QueryEscape(s.Name)
}

// ParseSequencer reads the text form. It accepts only what String writes.
func ParseSequencer(text string) (Sequencer, error) {
	bad := func(what string) (Sequencer, error) {
		return Sequencer{}, fmt.Errorf("sequencer %.80q %s: it looks like hf1:x:42:orders%%2F42",
			text, what)
	}
	parts := strings.SplitN(text, ":", 4)
	if len(parts) != 4 || parts[0] != "hf1" {
		return bad("is malformed")
	}
	mode := strings.Index(sequencerModes, parts[1])
	if len(parts[1]) != 1 || mode < 0 {
		return bad("has an unknown mode")
	}
	token, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || token < 0 || strconv.FormatInt(token, 10) != parts[2] {
		return bad("has a malformed token")
	}
	name, err := url.QueryUnescape(parts[3])
	if err != nil || CheckName(name) != nil || url.QueryEscape(name) != parts[3] {
		return bad("has a malformed name")
	}
	return Sequencer{Name: name, Mode: Mode(mode), Token: Token(token)}, nil
}

// MaxName is the length of the longest name in bytes, prefix included.
const MaxName = 512

// CheckName returns an error that says what is wrong with a name, or nil (P10). A name is 1 to
// MaxName bytes of valid UTF-8 without control characters and without an empty path element: no
// slash at either end, and no two together. A driver MUST keep any two such names apart.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("name is empty: 1 to 512 bytes of UTF-8 are needed")
	case len(name) > MaxName:
		return fmt.Errorf("name %.40q… has %d bytes: at most %d are allowed, prefix included",
			name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("name %q is not valid UTF-8", name)
	}
	if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 {
		return fmt.Errorf("name %q has a control character at byte %d", name, i)
	}
	if name[0] == '/' || name[len(name)-1] == '/' || strings.Contains(name, "//") {
		return fmt.Errorf("name %q has an empty path element: "+
			"no slash at the start or the end, and no two together", name)
	}
	return nil
}
