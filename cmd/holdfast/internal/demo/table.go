package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// column is a column of names, if it is the first, or of numbers.
type column[T any] struct {
	title string
	cell  func(T) string
}

var saleColumns = []column[Result]{
	{"strategy               ", func(r Result) string { return r.Strategy }},
	{"stock", func(r Result) string { return fmt.Sprint(r.Stock) }},
	{"sold", func(r Result) string { return r.ifRun("%d", r.Sold) }},
	{"oversold", func(r Result) string { return r.ifRun("%d", r.Oversold) }},
	{"twice", func(r Result) string { return r.ifRun("%d", r.UserViolations) }},
	{"refused", func(r Result) string { return r.ifRun("%d", r.StaleRefused) }},
	{"seconds", func(r Result) string { return r.ifRun("%.2f", r.Seconds) }},
	{"sales/s", func(r Result) string { return r.ifRun("%.0f", r.SalesPerSecond) }},
}

// ifRun formats a number of a run, or returns "-" if there was none.
func (r Result) ifRun(format string, number any) string {
	if r.Runs == 0 {
		return "-"
	}
	return fmt.Sprintf(format, number)
}

const saleLegend = "Of several runs the numbers are those of the one that went most wrong, " +
	"counted in its database after the services had ended. " +
	"twice: users with two orders, where one each is allowed. " +
	"refused: writes refused because their fencing token was stale. " +
	"seconds: from the first request to the last answer, a pause included."

// table writes the results of a flash sale as a table.
func (d *demonstration) table(results []Result) error {
	width := tableWidth(d.Width, d.Out)
	var b strings.Builder
	b.WriteString(wrap("", fmt.Sprintf("Flash sale: %d order services, %d users, one item each, "+
		"%d in stock. Every %dth user clicks twice.", d.Services, d.Users, d.Stock, impatient), width))
	b.WriteString("\n")
	text := func(r Result) string { return r.verdict() + ": " + r.What }
	writeTable(&b, saleColumns, results, width, text)
	b.WriteString("\n")
	b.WriteString(wrap("", saleLegend, width))
	sentence, good := conclusion(results)
	b.WriteString("\n" + coloured(d.Out, wrap("", sentence, width), good))
	return write(d.Out, b.String())
}

// conclusion says in a sentence what the results show, the lock beside no lock, and whether it is what the
// demonstration is to show.
func conclusion(results []Result) (sentence string, good bool) {
	var wrong, right []string
	good = true
	by := map[string]Result{}
	for _, r := range results {
		by[r.Strategy] = r
		switch {
		case r.Runs == 0:
			continue
		case r.OversoldRuns > 0 || r.ViolatedRuns > 0:
			wrong = append(wrong, r.Strategy)
		case !r.ExpectedWrong: // else it was luck
			right = append(right, r.Strategy)
		}
		good = good && (r.ExpectedWrong || r.OversoldRuns == 0 && r.ViolatedRuns == 0)
	}
	none, lock := by["none"], by["lock"]
	switch {
	case none.Runs > 0 && lock.Runs > 0 && none.Oversold > 0 && lock.OversoldRuns == 0 && lock.ViolatedRuns == 0:
		return fmt.Sprintf("Without a lock %d orders were taken for %d items; with the lock %d, and never more.",
			none.Sold, none.Stock, lock.Sold), good
	case len(wrong) > 0 && len(right) > 0:
		return fmt.Sprintf("Sold too much: %s. Sold right: %s.", strings.Join(wrong, ", "), strings.Join(right, ", ")), good
	case len(wrong) > 0:
		return "Sold too much: " + strings.Join(wrong, ", ") + ".", good
	case len(right) > 0:
		return "Nothing went wrong: " + strings.Join(right, ", ") + ".", good
	}
	return "Nothing was run.", false
}

// coloured makes lines bold green or bold red if they go to a terminal, unless the user wants no colours
// (NO_COLOR).
func coloured(out io.Writer, lines string, good bool) string {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || !term.IsTerminal(int(f.Fd())) {
		return lines
	}
	colour := "\x1b[1;31m"
	if good {
		colour = "\x1b[1;32m"
	}
	return colour + strings.TrimSuffix(lines, "\n") + "\x1b[0m\n"
}

// writeTable writes a row for each result: the columns that fit into the width, and a text beside
// the numbers if there is room for it, else below them.
func writeTable[T any](
	b *strings.Builder, columns []column[T], rows []T, width int, text func(T) string,
) {
	const gap, enough = "  ", 50
	var head string
	for i, c := range columns {
		wider := head + c.title
		if i > 0 {
			wider = head + gap + c.title
		}
		if len(wider) > width && i > 0 {
			columns = columns[:i]
			break
		}
		head = wider
	}
	beside := width-len(head)-len(gap) >= enough
	b.WriteString(strings.TrimRight(head, " ") + "\n")
	for _, row := range rows {
		line := fmt.Sprintf("%-*s", len(columns[0].title), columns[0].cell(row))
		for _, c := range columns[1:] {
			line += fmt.Sprintf("%s%*s", gap, len(c.title), c.cell(row))
		}
		if beside {
			indent := strings.Repeat(" ", len(head)) + gap
			b.WriteString(line + gap + strings.TrimLeft(wrap(indent, text(row), width), " "))
		} else {
			b.WriteString(line + "\n" + wrap(gap, text(row), width))
		}
	}
}

// wrap breaks a text between its words into indented lines of at most the width.
func wrap(indent, text string, width int) string {
	var b strings.Builder
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = indent + word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			b.WriteString(line + "\n")
			line = indent + word
		}
	}
	return b.String() + line + "\n"
}

// tableWidth returns the width asked for, else the terminal's, else 80.
func tableWidth(asked int, out io.Writer) int {
	if asked > 0 {
		return asked
	}
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
