package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// escape returns text so that it can be shown on a terminal. What others have chosen, such as names and
// notes, never reaches a terminal without it. It escapes, as Go does, control characters, bytes that are not
// UTF-8, blanks other than the space, and invisible characters such as U+202E, which changes the direction
// of writing.
func escape(text string) string {
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

// list is what a command prints: each row at once as an object, or all of them as a table for people. It escapes
// the texts of the table.
type list struct {
	*app
	rows [][]string
}

func (a *app) list(titles ...string) *list { return &list{a, [][]string{titles}} }

func (l *list) add(object any, cells ...string) error {
	if l.output == "json" {
		return printJSON(object)
	}
	for i := range cells {
		cells[i] = escape(cells[i])
	}
	l.rows = append(l.rows, cells)
	return nil
}

// print prints the table. If the list is empty, none is told instead.
func (l *list) print(none string) error {
	if l.output == "json" {
		return nil
	}
	if len(l.rows) == 1 {
		l.hint(none)
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range l.rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t")) // no blanks at the end of a line
	}
	return w.Flush()
}

// printJSON prints one object on one line.
func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// durationText returns a duration in a form that is easy to read. 0: it is not known.
func durationText(d time.Duration) string {
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
