package cli

import (
	"encoding/json"
	"fmt"
	"io"
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

// table is rows of texts in columns. It escapes the texts.
type table struct{ rows [][]string }

func newTable(titles ...string) *table { return &table{rows: [][]string{titles}} }

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = escape(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// empty reports whether there are titles only.
func (t *table) empty() bool { return len(t.rows) == 1 }

func (t *table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
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

// durationText returns a duration in a form that is easy to read.
func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
