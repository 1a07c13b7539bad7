package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// column is one column of a table.
type column struct {
	title   string
	drop    int  // on a narrow terminal the column with the highest number is left out first; 0: never
	shrinks bool // the column's texts may be cut
}

// readable is the width to which columns shrink before others are left out.
const readable = 10

// table is rows of texts in columns. It does not escape the texts.
type table struct {
	columns []column
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table so that it fits the width; 0 means no limit.
func (t *table) write(w io.Writer, width int) error {
	shown := t.fit(width)
	line := func(cell func(i int) string) string {
		var b strings.Builder
		for i, n := range shown {
			if n < 0 {
				continue
			}
			if b.Len() > 0 {
				b.WriteString("  ")
			}
			text := cell(i)
			if runewidth.StringWidth(text) > n {
				text = runewidth.Truncate(text, n, "…")
			}
			b.WriteString(runewidth.FillRight(text, n))
		}
		return strings.TrimRight(b.String(), " ")
	}
	var out strings.Builder
	fmt.Fprintln(&out, line(func(i int) string { return t.columns[i].title }))
	for _, row := range t.rows {
		fmt.Fprintln(&out, line(func(i int) string { return row[i] }))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// fit returns the width of each column; -1 leaves it out.
func (t *table) fit(width int) []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = runewidth.StringWidth(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
	}
	if width <= 0 {
		return widths
	}
	for excess(widths, width) > 0 && t.shrink(widths, readable) {
	}
	for excess(widths, width) > 0 && t.leaveOut(widths) {
	}
	for excess(widths, width) > 0 && t.shrink(widths, 1) {
	}
	return widths
}

// excess returns by how much the columns are wider than the width.
func excess(widths []int, width int) int {
	total := -2
	for _, n := range widths {
		if n >= 0 {
			total += n + 2
		}
	}
	return total - width
}

// shrink makes the widest column that may shrink narrower by one, but not narrower than least. It
// returns false if there is none.
func (t *table) shrink(widths []int, least int) bool {
	widest := -1
	for i, c := range t.columns {
		if c.shrinks && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
			widest = i
		}
	}
	if widest < 0 {
		return false
	}
	widths[widest]--
	return true
}

// leaveOut leaves out the column with the highest drop. It returns false if there is none.
func (t *table) leaveOut(widths []int) bool {
	first := -1
	for i, c := range t.columns {
		if c.drop > 0 && widths[i] >= 0 && (first < 0 || c.drop > t.columns[first].drop) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	widths[first] = -1
	return true
}

// outputWidth returns the width of the terminal that the output goes to, or 0 if the output is not
// a terminal.
func outputWidth() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		return width
	}
	return 0
}
