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

	read, readCounts      query // of a name, without and with how many wait
	insert, update        query
	writeNew, write       query // the row and places, in PostgreSQL
	take, release, remove query
	used, old             query
	join                  []query
	confirm               query
	over, forlorn         query // places
	removeOver            query
	removePlace, addPlace query // where they are no part of write
	readMeta, writeMeta   query
	begin, commit         []query // of a transaction in which the client reads
	start, finish         []query // of one that is sent as a whole

	mu    sync.Mutex
	lists map[string]query // those over lists of names, by their text
}

const (
	rowColumns = "version, token, owner, client, ttl, delay, note, taken, expires, crowd, extra"

	// present are the columns of l, also where it has no row: version is 0 then.
	present = `COALESCE(l.version, 0), COALESCE(l.token, 0), COALESCE(l.owner, ''), COALESCE(l.client, ''),
 COALESCE(l.ttl, 0), COALESCE(l.delay, 0), COALESCE(l.note, ''),
 COALESCE(l.taken, 0), COALESCE(l.expires, 0), COALESCE(l.crowd, 0), COALESCE(l.extra, '')`

	placeColumns = "owner, ticket, tokens, joined, asked, ends, request"

	// Reads the row of name $1, its first $2 places, and that of owner $3, in one snapshot: a
	// line for each place, or one line if there are none.
	readText = "SELECT {now}, " + present + `, {counts},
 COALESCE(p.owner, ''), COALESCE(p.ticket, 0), COALESCE(p.tokens, 0), COALESCE(p.joined, 0), COALESCE(p.asked, 0), COALESCE(p.ends, 0),
 COALESCE(p.request, '')
 FROM (SELECT 1 AS one) o LEFT JOIN {locks} l ON l.name = $1 {counting} LEFT JOIN (
 SELECT * FROM (SELECT {found} FROM {places} WHERE name = $1 ORDER BY ticket {limit} $2) h
 UNION ALL SELECT {found} FROM {places} WHERE name = $1 AND owner = $3) {joined}`
	// MariaDB makes a table on the disk of what is found there, at each statement, if a column is a BLOB. So it
	// finds tickets, and then the places of those.
	foundMySQL  = "ticket"
	joinedMySQL = "t ON 1 = 1 LEFT JOIN {places} p ON p.name = $1 AND p.ticket = t.ticket WHERE 1 = 1 {primary}"
	// How many wait, how many before the owner, and when the first place ends that is not
	// confirmed.
	counts   = "n.total, n.ahead, n.ends"
	counting = `LEFT JOIN (SELECT count(*) AS total, COALESCE(sum(CASE WHEN c.ticket < m.ticket THEN 1 ELSE 0 END), 0) AS ahead,
 COALESCE(min(c.ends), 0) AS ends FROM {places} c LEFT JOIN {places} m ON m.name = $1 AND m.owner = $3 WHERE c.name = $1) n ON 1 = 1`

	// Version and token are also not less than the time, so that those of a name
	// go on where they were when its row was removed and made again (P3).
	insertText = "INSERT {ignore} INTO {locks} (name, " + rowColumns + `)
 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) {or ignore}`
	updateText = `UPDATE {locks} SET version = $2, token = $3, owner = $4, client = $5, ttl = $6, delay = $7, note = $8,
 taken = $9, expires = $10, crowd = $11, extra = $12 WHERE name = $1 AND version = $13`
	// Writes the row (done), removes the places of the owners in $14 and adds those in $15,
	// and notifies the clients in $16. PostgreSQL delivers notifications if and when the
	// change is committed.
	writeNewText = "WITH done AS (" + insertText + " RETURNING 1), none AS (SELECT $13::bigint)" + placesText
	writeText    = "WITH done AS (" + updateText + " RETURNING 1)" + placesText
	placesText   = `, gone AS (DELETE FROM {places} WHERE name = $1 AND EXISTS (SELECT 1 FROM done)
 AND owner IN (SELECT json_array_elements_text($14::json)) RETURNING 1),
 come AS (INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, a.owner, a.tokens, a.joined, a.asked, a.ends, a.request FROM done,
 json_to_recordset($15::json) AS a(owner text, tokens bigint, joined bigint, asked bigint, ends bigint, request text)
 ON CONFLICT (name, owner) DO UPDATE SET tokens = excluded.tokens, asked = excluded.asked, ends = excluded.ends RETURNING 1)
 SELECT (SELECT count(*) FROM done), (SELECT count(pg_notify(m.channel, m.payload))
 FROM done, json_to_recordset($16::json) AS m(channel text, payload text))`

	// In other databases the places are written one by one, in the transaction that has
	// written the row; in MySQL only if it has.
	removePlaceText = "DELETE FROM {places} WHERE name = $1 AND owner = $2 {if done}"
	addPlaceText    = `INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, $2, $3, $4, $5, $6, $7 FROM (SELECT 1 AS one) o WHERE 1 = 1 {if done}
 {or replace} tokens = $3, asked = $5, ends = $6`

	// Takes a place at a name for which others wait (crowd says for what kind of lock), and
	// confirms one. Neither touches the name's row.
	joinText = `INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, $2, $3, {now}, $4, {now} + $5, $6 FROM {locks} l WHERE l.name = $1 AND l.crowd = $7
 {or replace} tokens = $3, asked = $4, ends = {now} + $5`
	// In MySQL an INSERT locks the rows that it reads, but this does not.
	forgetMySQL = "SET @holdfast_crowd = 0"
	crowdMySQL  = "SELECT crowd INTO @holdfast_crowd FROM {locks} WHERE name = $1"
	joinMySQL   = `INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, $2, $3, {now}, $4, {now} + $5, $6 FROM (SELECT 1 AS one) o WHERE @holdfast_crowd = $7
 {or replace} tokens = $3, asked = $4, ends = {now} + $5`
	// In PostgreSQL neither waits for the disk: suppose the server crashes, and forgets a place.
	// Then its owner, which has to ask again anyway, takes another.
	confirmPostgres = "UPDATE {places} SET tokens = $3, asked = $4, ends = {now} + $5" +
		" FROM (SELECT set_config('synchronous_commit', 'off', true) AS quick) o WHERE name = $1 AND owner = $2 AND o.quick = 'off'"
	confirmText = "UPDATE {places} SET tokens = $3, asked = $4, ends = {now} + $5 WHERE name = $1 AND owner = $2"

	// Places that nobody has confirmed: of a name, and of all names.
	overText    = "SELECT name, owner FROM {places} WHERE name = $1 AND ends < {now} ORDER BY ends LIMIT 2"
	removeOver  = "DELETE FROM {places} WHERE name = $1 AND owner = $2 AND ends < {now}"
	forlornText = "SELECT name, owner FROM {places} WHERE ends < {now} - {forget} ORDER BY ends {limit} $1"

	// Takes a plain hold on a name that nobody uses. A statement that waits for the row
	// judges it as it is afterwards. WHERE NOT EXISTS finds a name in use before the
	// conflict does: a conflict locks the row, and then the transaction is written to disk.
	takeText = `INSERT INTO {locks} AS l (name, ` + rowColumns + `)
 SELECT $1, {now}, {now}, $2, $3, $4, $5, $6, {now}, {now} + $4, 0, ''
 WHERE NOT EXISTS (SELECT 1 FROM {locks} h WHERE h.name = $1
 AND (h.extra <> '' OR h.crowd <> 0 OR h.owner <> '' AND h.expires + h.delay > {now}))
 ON CONFLICT (name) DO UPDATE SET version = {max}(l.version + 1, {now}), token = {max}(l.token + 1, {now}),
 owner = excluded.owner, client = excluded.client, ttl = excluded.ttl, delay = excluded.delay, note = excluded.note,
 taken = {now}, expires = {now} + excluded.ttl
 WHERE l.extra = '' AND l.crowd = 0 AND (l.owner = '' OR l.expires + l.delay <= {now}) RETURNING token`
	takeMySQL = `UPDATE {locks} SET version = {max}(version + 1, {now}), token = LAST_INSERT_ID({max}(token + 1, {now})),
 owner = $2, client = $3, ttl = $4, delay = $5, note = $6, taken = {now}, expires = {now} + $4
 WHERE name = $1 AND extra = '' AND crowd = 0 AND (owner = '' OR expires + delay <= {now}) {primary}`

	// Ends such a hold. Its row keeps the token.
	freeText = "UPDATE {locks} SET version = {max}(version + 1, {now})," +
		" owner = '', client = '', ttl = 0, delay = 0, note = '', taken = 0, expires = 0"
	releaseText = freeText + ` WHERE name = $1 AND owner = $2 AND extra = '' AND crowd = 0 AND expires > {now}`

	// In PostgreSQL the two return, in the same round trip, the row that is there instead.
	takePostgres    = "WITH done AS (" + takeText + ") SELECT COALESCE((SELECT token FROM done), 0), {now}, " + present + insteadText
	releasePostgres = "WITH done AS (" + releaseText + " RETURNING 1)" +
		" SELECT (SELECT count(*) FROM done), {now}, " + present + insteadText
	insteadText = " FROM (SELECT 1 AS one) o LEFT JOIN {locks} l ON l.name = $1 AND NOT EXISTS (SELECT 1 FROM done)"

	usedText = "SELECT name, {now}, " + rowColumns + " FROM {locks} WHERE name > $1 AND name >= $2 AND name <= $3" +
		" AND (owner <> '' OR extra <> '' OR crowd <> 0) {primary} ORDER BY name {limit} $4"
	oldText = "SELECT name, {now}, " + rowColumns + " FROM {locks} WHERE name > $1 AND version < {now} - $2 ORDER BY name {limit} $3"
	// A row that was used since the page was read has a newer version.
	removeListText = "DELETE FROM {locks} WHERE name IN ({names}) AND extra = '' AND crowd = 0" +
		" AND (owner = '' OR expires + delay <= {now}) AND version < {now} - {forget}"
	removeText = "DELETE FROM {locks} WHERE name = $1 AND version = $2"

	// Each owner has one name, so a list of names and one of owners make pairs.
	pairs        = " WHERE name IN ({names}) AND owner IN ({owners}) AND extra = '' AND expires > {now} {primary}"
	renewText    = "UPDATE {locks} SET version = {max}(version + 1, {now}), expires = {now} + ttl" + pairs
	endText      = freeText + pairs + " AND crowd = 0"
	plainText    = "SELECT name, owner FROM {locks}" + pairs
	rowsText     = "SELECT name, {now}, " + rowColumns + " FROM {locks} WHERE name IN ({names}) {primary}"
	placesOfText = "SELECT name, " + placeColumns + " FROM {places} WHERE name IN ({names}) ORDER BY ticket"
	versionsText = "SELECT name, version FROM {locks} WHERE name IN ({names}) {primary}"
	// How many places come before each of these, up to a bound.
	queuedText = "SELECT p.name, p.owner, (SELECT count(*) FROM {places} q WHERE q.name = p.name AND q.ticket < p.ticket)" +
		" FROM {places} p WHERE p.name IN ({names}) AND p.owner IN ({owners}) {primary}"

	readMetaText  = "SELECT name, value FROM {meta}"
	writeMetaText = "INSERT {ignore} INTO {meta} (name, value) VALUES ($1, $2) {or ignore}"
)

func newStatements(d Dialect, prefix string, before []any) *statements {
	s := &statements{dialect: d, tables: tablesOf(prefix), before: slices.Clip(before), lists: map[string]query{}}
	take, release := takePostgres, releasePostgres
	confirm := confirmText
	found, joined := placeColumns, "p ON 1 = 1"
	switch d {
	case Postgres:
		confirm = confirmPostgres
	case MySQL:
		take, release = takeMySQL, releaseText
		found, joined = foundMySQL, joinedMySQL
	}
	read := strings.NewReplacer("{found}", found, "{joined}", joined).Replace(readText)
	for q, text := range map[*query]string{
		&s.read:       strings.NewReplacer("{counts}", "0, 0, 0", "{counting}", "").Replace(read),
		&s.readCounts: strings.NewReplacer("{counts}", counts, "{counting}", counting).Replace(read),
		&s.insert:     insertText, &s.update: updateText, &s.writeNew: writeNewText, &s.write: writeText,
		&s.removePlace: removePlaceText, &s.addPlace: addPlaceText,
		&s.confirm: confirm, &s.over: overText, &s.removeOver: removeOver, &s.forlorn: forlornText,
		&s.take: take, &s.release: release, &s.remove: removeText, &s.used: usedText, &s.old: oldText,
		&s.readMeta: readMetaText, &s.writeMeta: writeMetaText,
	} {
		*q = s.query(text)
	}
	for texts, into := range map[*map[Dialect][]string]*[]query{
		&beginTexts: &s.begin, &commitTexts: &s.commit, &startTexts: &s.start, &finishTexts: &s.finish, &joinTexts: &s.join,
	} {
		for _, text := range (*texts)[d] {
			*into = append(*into, s.query(text))
		}
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
