package mysqlconn

import (
	"context"
	"database/sql"
	"strings"

	"github.com/holdfastlock/holdfast/sqllock"
)

// together implements Together of sqllock.Library: it sends the statements as one text. The
// pool needs multiStatements and interpolateParams for that.
func together(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
	var texts []string
	var args []any
	var results [][]any // of statements that have one
	for _, s := range statements {
		texts, args = append(texts, s.Text), append(args, s.Args...)
		if s.Changed != nil {
			texts, results = append(texts, "SELECT ROW_COUNT()"), append(results, []any{s.Changed})
		}
		if s.Into != nil {
			results = append(results, s.Into)
		}
	}
	rows, err := conn.QueryContext(ctx, strings.Join(texts, ";\n"), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var wrong error
	for i, into := range results {
		switch {
		case wrong != nil || i > 0 && !rows.NextResultSet():
		case !rows.Next():
			wrong = sql.ErrNoRows
		default:
			wrong = rows.Scan(into...)
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
		{Text: "SELECT ?", Args: []any{1}, Into: []any{&one}},
		{Text: "DO 0"},
		{Text: "SELECT ?", Args: []any{2}, Into: []any{&two}},
	}) == nil && one == 1 && two == 2
}
