package sqllock

import (
	"fmt"
	"strings"
)

// schemaVersion is the version of the tables' form. Clients refuse another.
const schemaVersion = "1"

// The columns of {locks}. One row is one name: the version, which each write raises, the
// last token, and one exclusive hold for which nobody waits. Anything else (more holds,
// waiters, closed names, tombstones) is in record, as JSON; then the other columns show one
// of the holds, for people. A hold with a block of several tokens stands in record too,
// with its own token and the last of the block, which is that of the row until the hold's
// release tells which was used last.
//
// While a fleet is upgraded, programs of the version before share the table. They read a
// record with a block as any other, and go on above the token of the row; if they write it
// they leave the end of the block out, and then its unused tokens are not given back. Their
// waiters name no number of tokens: such a waiter is granted one, by a message that it
// understands. Their holds use up to tokenGap tokens from that in the row on, so new tokens
// are above those.
//
// Times are microseconds since 1970 by the clock of
// the server, durations microseconds.
const (
	schemaPostgres = `CREATE TABLE IF NOT EXISTS {locks} (
  name text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  token bigint NOT NULL,
  owner text NOT NULL,
  client text NOT NULL,
  ttl bigint NOT NULL,
  delay bigint NOT NULL,
  note text NOT NULL,
  taken bigint NOT NULL,
  expires bigint NOT NULL,
  record text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE IF NOT EXISTS {meta} (
  name text COLLATE "C" PRIMARY KEY,
  value text NOT NULL
);`

	schemaMySQL = `CREATE TABLE IF NOT EXISTS {locks} (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  token BIGINT NOT NULL,
  owner VARBINARY(512) NOT NULL,
  client VARBINARY(64) NOT NULL,
  ttl BIGINT NOT NULL,
  delay BIGINT NOT NULL,
  note VARBINARY(1024) NOT NULL,
  taken BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  record LONGBLOB NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {meta} (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  value VARBINARY(64) NOT NULL
) ENGINE = InnoDB;`

	schemaSQLite = `CREATE TABLE IF NOT EXISTS {locks} (
  name TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  token INTEGER NOT NULL,
  owner TEXT NOT NULL,
  client TEXT NOT NULL,
  ttl INTEGER NOT NULL,
  delay INTEGER NOT NULL,
  note TEXT NOT NULL,
  taken INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  record TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {meta} (
  name TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;`
)

var schemas = map[Dialect]string{Postgres: schemaPostgres, MySQL: schemaMySQL, SQLite: schemaSQLite}

// Schema returns the statements that create the tables, unless they exist, each
// ended by a semicolon and a line feed. A driver runs them by itself; it is for those whose
// role may not create tables: its holders need SELECT, INSERT, UPDATE and DELETE
// on both. The prefix is that of [Options], "" the default. It panics if there is
// no such dialect or the prefix is not one.
func (d Dialect) Schema(prefix string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if err := CheckPrefix(prefix); err != nil {
		panic("sqllock: " + err.Error())
	}
	text, ok := schemas[d]
	if !ok {
		panic("sqllock: " + d.String())
	}
	return d.words(text, tablesOf(prefix)) + "\n"
}

// creation returns the statements that create the tables, one by one.
func (d Dialect) creation(prefix string) []string {
	text := d.Schema(prefix)
	if d == Postgres {
		// In one statement and behind a lock of its own, because PostgreSQL
		// refuses the second of two that create a table at the same time.
		return []string{fmt.Sprintf("DO $create$ BEGIN PERFORM pg_advisory_xact_lock(%d);\n%sEND $create$", creationLock, text)}
	}
	var statements []string
	for s := range strings.SplitSeq(text, ";\n") {
		if s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}

// creationLock is the key of PostgreSQL's advisory lock for creating the tables.
const creationLock = 0x686f6c6466617374 // "holdfast"

// MaxPrefix is the length of the longest prefix, in bytes.
const MaxPrefix = 40

// CheckPrefix returns an error if the prefix is not 1 to MaxPrefix lower-case
// letters, digits and underscores that begin with a letter, or two such words with a dot
// between.
func CheckPrefix(prefix string) error {
	word := func(s string) bool {
		return s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
	}
	schema, table, two := strings.Cut(prefix, ".")
	if !word(schema) || two && !word(table) || len(prefix) > MaxPrefix {
		return fmt.Errorf("prefix %.50q: up to %d lower-case letters, digits and underscores that begin with a letter"+
			" are allowed, and before them a schema and a dot", prefix, MaxPrefix)
	}
	return nil
}
