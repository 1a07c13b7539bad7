package sqllock

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// statements are those of one dialect and prefix. As a rule each is a transaction of its
// own that changes one row, or several that succeed or fail each on its own. So there is no
// order in which to lock, no transaction that a stopped client could leave open, and nothing
// depends on the level of isolation.
type statements struct {
	dialect Dialect
	tables  tables
	before  []any // Library.Before

	read, insert, update, tell query
	take, release, remove      query
	used, old                  query
	readMeta, writeMeta        query
	begin                      []query
	commit                     []query

	mu    sync.Mutex
	lists map[string]query // those over lists of names, by their text
}

const (
	rowColumns = "version, token, owner, client, ttl, delay, note, taken, expires, record"

	// present are the columns of l, also where it has no row: version is 0 then.
	present = `COALESCE(l.version, 0), COALESCE(l.token, 0), COALESCE(l.owner, ''), COALESCE(l.client, ''),
 COALESCE(l.ttl, 0), COALESCE(l.delay, 0), COALESCE(l.note, ''),
 COALESCE(l.taken, 0), COALESCE(l.expires, 0), COALESCE(l.record, '')`

	readText = "SELECT {now}, " + present + " FROM (SELECT 1 AS one) o LEFT JOIN {locks} l ON l.name = $1"

	// Version and token are also not less than the time, so that those of a name
	// go on where they were when its row was removed and made again (P3).
	insertText = "INSERT {ignore} INTO {locks} (name, " + rowColumns + `)
 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) {or ignore}`
	updateText = `UPDATE {locks} SET version = $2, token = $3, owner = $4, client = $5, ttl = $6, delay = $7, note = $8,
 taken = $9, expires = $10, record = $11 WHERE name = $1 AND version = $12`
	// PostgreSQL delivers notifications if and when the change is committed.
	tellText = "WITH done AS (" + updateText + ` RETURNING 1)
 SELECT count(pg_notify(m.channel, m.payload)) FROM done, json_to_recordset($13::json) AS m(channel text, payload text)`

	// Takes a plain hold on a name that nobody uses. A statement that waits for the row
	// judges it as it is afterwards. WHERE NOT EXISTS finds a name in use before the
	// conflict does: a conflict locks the row, and then the transaction is written to disk.
	takeText = `INSERT INTO {locks} AS l (name, ` + rowColumns + `)
 SELECT $1, {now}, {now}, $2, $3, $4, $5, $6, {now}, {now} + $4, ''
 WHERE NOT EXISTS (SELECT 1 FROM {locks} h WHERE h.name = $1
 AND (h.record <> '' OR h.owner <> '' AND h.expires + h.delay > {now}))
 ON CONFLICT (name) DO UPDATE SET version = {max}(l.version + 1, {now}), token = {max}(l.token + {gap}, {now}),
 owner = excluded.owner, client = excluded.client, ttl = excluded.ttl, delay = excluded.delay, note = excluded.note,
 taken = {now}, expires = {now} + excluded.ttl
 WHERE l.record = '' AND (l.owner = '' OR l.expires + l.delay <= {now}) RETURNING token`
	takeMySQL = `UPDATE {locks} SET version = {max}(version + 1, {now}), token = LAST_INSERT_ID({max}(token + {gap}, {now})),
 owner = $2, client = $3, ttl = $4, delay = $5, note = $6, taken = {now}, expires = {now} + $4
 WHERE name = $1 AND record = '' AND (owner = '' OR expires + delay <= {now})`

	// Ends such a hold. Its row keeps the token.
	freeText = "UPDATE {locks} SET version = {max}(version + 1, {now})," +
		" owner = '', client = '', ttl = 0, delay = 0, note = '', taken = 0, expires = 0"
	releaseText = freeText + ` WHERE name = $1 AND owner = $2 AND record = '' AND expires > {now}`

	// In PostgreSQL the two return, in the same round trip, the row that is there instead.
	takePostgres    = "WITH done AS (" + takeText + ") SELECT COALESCE((SELECT token FROM done), 0), {now}, " + present + insteadText
	releasePostgres = "WITH done AS (" + releaseText + " RETURNING 1)" +
		" SELECT (SELECT count(*) FROM done), {now}, " + present + insteadText
	insteadText = " FROM (SELECT 1 AS one) o LEFT JOIN {locks} l ON l.name = $1 AND NOT EXISTS (SELECT 1 FROM done)"

	usedText = "SELECT name, {now}, " + rowColumns +
		" FROM {locks} WHERE name > $1 AND name >= $2 AND name <= $3 AND (owner <> '' OR record <> '') ORDER BY name LIMIT $4"
	oldText = "SELECT name, {now}, " + rowColumns + " FROM {locks} WHERE name > $1 AND version < {now} - $2 ORDER BY name LIMIT $3"
	// A row that was used since the page was read has a newer version.
	removeListText = "DELETE FROM {locks} WHERE name IN ({names}) AND record = ''" +
		" AND (owner = '' OR expires + delay <= {now}) AND version < {now} - {forget}"
	removeText = "DELETE FROM {locks} WHERE name = $1 AND version = $2"

	// Each owner has one name, so a list of names and one of owners make pairs.
	pairs        = " WHERE name IN ({names}) AND owner IN ({owners}) AND record = '' AND expires > {now}"
	renewText    = "UPDATE {locks} SET version = {max}(version + 1, {now}), expires = {now} + ttl" + pairs
	endText      = freeText + pairs
	plainText    = "SELECT name, owner FROM {locks}" + pairs
	rowsText     = "SELECT name, {now}, " + rowColumns + " FROM {locks} WHERE name IN ({names})"
	versionsText = "SELECT name, version FROM {locks} WHERE name IN ({names})"

	readMetaText  = "SELECT name, value FROM {meta}"
	writeMetaText = "INSERT {ignore} INTO {meta} (name, value) VALUES ($1, $2) {or ignore}"
)

func newStatements(d Dialect, prefix string, before []any) *statements {
	s := &statements{dialect: d, tables: tablesOf(prefix), before: slices.Clip(before), lists: map[string]query{}}
	take, release := takePostgres, releasePostgres
	if d == MySQL {
		take, release = takeMySQL, releaseText
	}
	for q, text := range map[*query]string{
		&s.read: readText, &s.insert: insertText, &s.update: updateText, &s.tell: tellText,
		&s.take: take, &s.release: release, &s.remove: removeText, &s.used: usedText, &s.old: oldText,
		&s.readMeta: readMetaText, &s.writeMeta: writeMetaText,
	} {
		*q = s.query(text)
	}
	for _, text := range beginTexts[d] {
		s.begin = append(s.begin, s.query(text))
	}
	for _, text := range commitTexts[d] {
		s.commit = append(s.commit, s.query(text))
	}
	return s
}

// query translates a statement.
func (s *statements) query(text string) query {
	q := s.dialect.query(text, s.tables)
	q.before = s.before
	return q
}

// list returns a statement over lists of names and owners, and its arguments. The
// lists are filled up to a power of two with their last items, so there are few different
// statements.
func (s *statements) list(text string, names, owners []string) (query, []any) {
	size := 1
	for size < len(names) {
		size *= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strconv.Itoa(size) + text
	q, ok := s.lists[key]
	if !ok {
		full := strings.NewReplacer("{names}", placeholders(1, size), "{owners}", placeholders(size+1, size)).Replace(text)
		q = s.query(full)
		s.lists[key] = q
	}
	var args []any
	for _, items := range [][]string{names, owners} {
		for i := range size {
			if len(items) > 0 {
				args = append(args, items[min(i, len(items)-1)])
			}
		}
	}
	return q, args
}

// placeholders returns n placeholders from one on.
func placeholders(first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(first+i))
	}
	return b.String()
}
