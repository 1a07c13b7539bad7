// Package display writes what operators see of locks as text: for the command's tables and for the console.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/driver"
)

// Escape returns text so that it can be shown on a terminal or a page. What others have chosen, such as names
// and notes, never reaches a person without it. It escapes, as Go does, control characters, bytes that are not
// UTF-8, blanks other than the space, and invisible characters such as U+202E, which changes the direction
// of writing.
func Escape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
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

// Duration returns a duration in a form that is easy to read. 0: it is not known.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d == 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// State says in a word or two how a name is held.
func State(info driver.Info) string {
	switch n := len(info.Holders); {
	case n == 0 && info.ClosedFor > 0:
		return "closed"
	case n == 0:
		return "free"
	case info.Holders[0].Mode == driver.Slot:
		permits := 0
		for _, h := range info.Holders {
			permits += h.Permits
		}
		return fmt.Sprintf("%d of %d", permits, info.Slots)
	case n > 1:
		return fmt.Sprintf("%v ×%d", info.Holders[0].Mode, n)
	}
	return info.Holders[0].Mode.String()
}

// Mode says what a holder has or a waiter wants.
func Mode(mode driver.Mode, permits, slots int) string {
	if mode == driver.Slot {
		return fmt.Sprintf("%d of %d", permits, slots)
	}
	return mode.String()
}
