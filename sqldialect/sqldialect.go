// Package sqldialect has what packages sqllock, txlock, fence and optimistic share of the SQL of databases. Each of
// them exports the dialects too, so that a program writes txlock.Postgres. They are the same values in all of them.
package sqldialect

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Dialect is a database's SQL.
type Dialect uint8

// The dialects.
const (
	Postgres Dialect = iota + 1 // PostgreSQL
	MySQL                       // MariaDB 10.6 and MySQL 8.0, and later; InnoDB tables
	SQLite                      // SQLite 3.35 and later
)

// Known reports whether the dialect is one of the three.
func (d Dialect) Known() bool { return d >= Postgres && d <= SQLite }

// Check returns an error unless the dialect is known.
func (d Dialect) Check() error {
	if d.Known() {
		return nil
	}
	return fmt.Errorf("dialect %d is unknown: use Postgres, MySQL or SQLite", uint8(d))
}

// String returns "postgres", "mysql" or "sqlite".
func (d Dialect) String() string {
	if !d.Known() {
		return "unknown dialect"
	}
	return [...]string{Postgres: "postgres", MySQL: "mysql", SQLite: "sqlite"}[d]
}

// words are the words of each dialect: see Dialect.Words.
var words = [...]*strings.Replacer{
	Postgres: strings.NewReplacer("{name}", "$1", "{2}", "$2", "{3}", "$3", "{max}", "greatest", "{key}", `text COLLATE "C"`,
		"{busy}", " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"),
	MySQL: strings.NewReplacer("{name}", "UNHEX(?)", "{2}", "?", "{3}", "?", "{max}", "GREATEST", "{key}", "VARBINARY(512)",
		"{busy}", " ENGINE = InnoDB"),
	SQLite: strings.NewReplacer("{name}", "?", "{2}", "?", "{3}", "?", "{max}", "max", "{key}", "TEXT", "{busy}", " WITHOUT ROWID"),
}

// Words replaces {words} in SQL by the dialect's own. It panics if the dialect is unknown.
//
//	{name}    the placeholder of the first argument, which is a name and is passed by NameArg
//	{2}, {3}  those of the second and the third argument
//	{max}     the greatest of several values
//	{key}     the type of a column of names. Names that differ in a byte are different: MySQL's text types would not
//	          keep them apart, under most collations and with trailing spaces
//	{busy}    the options of a table whose rows are written with each lock. Each write makes a new version of a row in
//	          PostgreSQL. Room for it on the same page, and a vacuum that does not wait for a fifth of the table, keep
//	          the table small
func (d Dialect) Words(text string) string {
	if err := d.Check(); err != nil {
		panic("sqldialect: " + err.Error())
	}
	return words[d].Replace(text)
}

// NameArg returns a name as an argument: to MySQL as hexadecimal digits. No conversion between character sets touches
// them, and a client library that writes arguments into the text cannot quote them wrongly, as it may a name on a
// connection in GBK.
func (d Dialect) NameArg(name string) any {
	if d == MySQL {
		return hex.EncodeToString([]byte(name))
	}
	return name
}

// Placeholder returns what stands for the n-th argument of a statement, counted from 1.
func (d Dialect) Placeholder(n int) string {
	if d == Postgres {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}
