package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape returns text as it may be shown on a terminal: control characters,
// bytes that are no UTF-8, blanks other than the space, and invisible characters
// such as those that turn the direction of writing (U+202E) are written out as
// in Go, and so is the backslash itself: what is shown is never ambiguous.
func escape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\\':
			b.WriteString(`\\`)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}
