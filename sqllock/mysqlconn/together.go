package mysqlconn

import (
	"context"
	"database/sql"
	"strings"

	"github.com/holdfastlock/holdfast/sqllock"
)

// together implements Together of sqllock.Library: it sends the statements as one text. The pool needs
// multiStatements for that. Package sqllock writes arguments into the texts itself.
func together(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
	var texts []string
	var results []func(scan func(...any) error) error // of statements that have one, for each row
	once := func(into []any) func(func(...any) error) error {
		return func(scan func(...any) error) error { return scan(into...) }
	}
	var single []bool // it must have one row
	for _, s := range statements {
		texts = append(texts, s.Text)
		if s.Changed != nil {
			texts, results, single = append(texts, "SELECT ROW_COUNT()"), append(results, once([]any{s.Changed})), append(single, true)
		}
		switch {
		case s.Into != nil:
			results, single = append(results, once(s.Into)), append(single, true)
		case s.Each != nil:
			results, single = append(results, s.Each), append(single, false)
		}
	}
	rows, err := conn.QueryContext(ctx, strings.Join(texts, ";\n"))
	if err != nil {
		return err
	}
	defer rows.Close()
	var wrong error
	for i, each := range results {
		if wrong != nil || i > 0 && !rows.NextResultSet() {
			break
		}
		n := 0
		for wrong == nil && rows.Next() {
			wrong = each(rows.Scan)
			n++
		}
		if n == 0 && single[i] && wrong == nil {
			wrong = sql.ErrNoRows
		}
	}
	for rows.NextResultSet() { // until the last statement has been carried out
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return wrong
}

// takesTogether reports whether a pool's connections accept several statements as one text.
func takesTogether(ctx context.Context, db *sql.DB) bool {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	var one, two int
	return together(ctx, conn, []sqllock.Statement{
		{Text: "SELECT 1", Into: []any{&one}},
		{Text: "DO 0"},
		{Text: "SELECT 2", Into: []any{&two}},
	}) == nil && one == 1 && two == 2
}
