package driver

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
