package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape returns text so that it can be shown on a terminal. It escapes, as Go does, control
// characters, bytes that are not UTF-8, blanks other than the space, invisible characters such as
// U+202E, which changes the direction of writing, and the backslash, so the result is unambiguous.
func escape(text string) string { return escapeBut(text, `\`) }

// printable is escape for messages, in which what others have chosen is quoted already: a backslash stays
// as it is.
func printable(text string) string { return escapeBut(text, "") }

// escapeBut escapes as escape does, the backslash only if it is among others.
func escapeBut(text, others string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case strings.ContainsRune(others, r):
			b.WriteByte('\\')
			b.WriteRune(r)
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
