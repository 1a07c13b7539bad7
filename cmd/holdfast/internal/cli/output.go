package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/holdfastlock/holdfast/internal/display"
)

// list is what a command prints: each row at once as an object, or all of them as a table for people. It escapes
// the texts of the table.
type list struct {
	*app
	rows [][]string
	err  error // of the output
}

func (a *app) list(titles ...string) *list { return &list{app: a, rows: [][]string{titles}} }

func (l *list) add(object any, cells ...string) {
	if l.output == "json" {
		l.err = cmp.Or(l.err, printJSON(object))
		return
	}
	for i := range cells {
		cells[i] = display.Escape(cells[i])
	}
	l.rows = append(l.rows, cells)
}

// print prints the table. If the list is empty, none is told instead.
func (l *list) print(none string) error {
	if l.output == "json" {
		return l.err
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
