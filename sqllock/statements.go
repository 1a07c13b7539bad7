package sqllock

import (
	"strconv"
	"strings"
	"sync"
)

// statements are those of one dialect and prefix. Rules for all of them: what changes a hold, extra or crowd, or
// removes the place of a live waiter, has the exclusive lock of the name's row and decides by what is read under
// it, or has a WHERE that the database judges under that lock. A new place is inserted under the shared lock of a
// row whose crowd says its kind. Rows are locked in the order of names, and places after the row. See step.
type statements struct {
	dialect Dialect
	prefix  string // of the tables' names
	waits   bool   // the rule of package life is kept: see client.opens
	// unlogged says that a crash of PostgreSQL empties the tables. Then the row of the life is the life.
	unlogged bool

	mu         sync.Mutex
	translated map[string]string // by the texts below
}

const (
	rowColumns = "version, token, owner, client, ttl, delay, note, taken, expires, crowd, extra"

	// Reads the row of name $1, how many wait and how many of them before owner $3, its first $2 places and that of the
	// owner, in one snapshot: a line for each place, or one line if there are none. Version is 0 if there is no row.
	readText  = "SELECT {now}, {memory}, n.total, n.ahead, " + rowOrNone + fromRow + counting + fromPlaces
	rowOrNone = `COALESCE(l.version, 0), COALESCE(l.token, 0), COALESCE(l.owner, ''), COALESCE(l.client, ''),
 COALESCE(l.ttl, 0), COALESCE(l.delay, 0), COALESCE(l.note, ''),
 COALESCE(l.taken, 0), COALESCE(l.expires, 0), COALESCE(l.crowd, 0), COALESCE(l.extra, ''), ` + placeOrNone
	fromRow    = " FROM (SELECT 1 AS one) o LEFT JOIN {locks} l ON l.name = $1"
	fromPlaces = ` LEFT JOIN (
 SELECT * FROM (SELECT {found} FROM {places} WHERE name = $1 ORDER BY ticket LIMIT $2) h
 UNION ALL SELECT {found} FROM {places} WHERE name = $1 AND owner = $3) {joined}`
	placeColumns = "owner, ticket, tokens, joined, asked, ends, request"
	placeOrNone  = "COALESCE(p.owner, ''), COALESCE(p.ticket, 0), COALESCE(p.tokens, 0), COALESCE(p.joined, 0)," +
		" COALESCE(p.asked, 0), COALESCE(p.ends, 0), COALESCE(p.request, '')"
	// MariaDB makes a table on the disk of what is found there, at each statement, if a column is a BLOB. So it
	// finds tickets, and then the places of those.
	joinedMySQL = "t ON 1 = 1 LEFT JOIN {places} p ON p.name = $1 AND p.ticket = t.ticket WHERE 1 = 1 " + primaryMySQL
	counting    = ` LEFT JOIN (SELECT count(*) AS total, COALESCE(sum(CASE WHEN ticket <
 (SELECT ticket FROM {places} WHERE name = $1 AND owner = $3) THEN 1 ELSE 0 END), 0) AS ahead FROM {places} WHERE name = $1) n ON 1 = 1`

	// Version and token are also not less than the time, so that those of a name go on where they were when its row
	// was removed and made again (P3).
	insertText = "INSERT {ignore} INTO {locks} (name, " + rowColumns + `)
 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) {or ignore}`
	updateText = `UPDATE {locks} SET version = $2, token = $3, owner = $4, client = $5, ttl = $6, delay = $7, note = $8,
 taken = $9, expires = $10, crowd = $11, extra = $12 WHERE name = $1`
	removePlaceText = "DELETE FROM {places} WHERE name = $1 AND owner = $2"
	addPlaceText    = `INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 VALUES ($1, $2, $3, $4, $5, $6, $7) {or replace} tokens = $3, asked = $5, ends = $6`
	notifyText = "SELECT pg_notify($1, $2)"

	// Takes a place at a name that another holds and for which others wait (crowd says for what kind of lock), and confirms
	// one. A joiner waits while a step has the row, and a step while a joiner has it. In PostgreSQL neither waits for the
	// disk: if the server crashes and forgets a place, its owner, which has to ask again anyway, takes another. Both tell
	// how many are ahead, and of a plain hold its token, in how many microseconds its name opens, and its note.
	joinPostgres = `INSERT INTO {places} AS p (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, $2, $3, {now}, $4, {now} + $5, $6 FROM {locks} l WHERE l.name = $1 AND l.crowd = $7 AND l.owner <> $2
 AND set_config('synchronous_commit', CASE WHEN l.crowd = $7 THEN 'off' END, true) = 'off' FOR KEY SHARE
 {or replace} tokens = $3, asked = $4, ends = {now} + $5 RETURNING ` + aheadAndHold
	confirmPostgres = "UPDATE {places} p SET tokens = $3, asked = $4, ends = {now} + $5" +
		" FROM (SELECT set_config('synchronous_commit', 'off', true) AS quick) o WHERE name = $1 AND owner = $2 AND o.quick = 'off' RETURNING " + aheadAndHold
	joinMySQL = `INSERT INTO {places} (name, owner, tokens, joined, asked, ends, request)
 SELECT $1, $2, $3, {now}, $4, {now} + $5, $6 FROM {locks} WHERE name = $1 AND crowd = $7 AND owner <> $2 LOCK IN SHARE MODE
 {or replace} tokens = $3, asked = $4, ends = VALUES(ends)`
	confirmPlain = "UPDATE {places} SET tokens = $3, asked = $4, ends = {now} + $5 WHERE name = $1 AND owner = $2"
	joinedText   = "SELECT " + aheadAndHold + " FROM {places} p WHERE p.name = $1 AND p.owner = $2 {primary}"
	aheadAndHold = `(SELECT count(*) FROM {places} q WHERE q.name = $1 AND q.ticket < p.ticket),
 COALESCE((SELECT CONCAT(h.token, ' ', h.expires + h.delay - {now}, ' ', h.note) FROM {locks} h WHERE h.name = $1 AND h.extra = ''), '')`

	// Places that nobody has confirmed.
	endedText       = "SELECT name, owner FROM {places} WHERE ends < {now} ORDER BY ends LIMIT $1"
	removeEndedText = "DELETE FROM {places} WHERE name = $1 AND owner = $2 AND ends < {now}"

	// Takes a plain hold on a name that nobody uses. A statement that waits for the row judges it as it is
	// afterwards. WHERE NOT EXISTS finds a name in use before the conflict does: a conflict locks the row, and then
	// the transaction is written to disk.
	// What is written counts from the time before the wait, which is not before the request was sent (P1).
	takePostgres = `INSERT INTO {locks} AS l (name, ` + rowColumns + `)
 SELECT $1, now, now, $2, $3, $4, $5, $6, now, now + $4, 0, '' FROM (SELECT {now} AS now) t
 WHERE {life} = $7 AND now <= $8 AND NOT EXISTS (SELECT 1 FROM {locks} h WHERE h.name = $1
 AND (h.extra <> '' OR h.crowd <> 0 OR h.owner <> '' AND h.expires + h.delay > now))
 ON CONFLICT (name) DO UPDATE SET version = {max}(l.version + 1, excluded.version), token = {max}(l.token + 1, excluded.token),
 owner = excluded.owner, client = excluded.client, ttl = excluded.ttl, delay = excluded.delay, note = excluded.note,
 taken = excluded.taken, expires = excluded.expires
 WHERE l.extra = '' AND l.crowd = 0 AND (l.owner = '' OR l.expires + l.delay <= {now}) RETURNING token`
	takeMySQL = `UPDATE {locks} SET version = {max}(version + 1, {now}), token = LAST_INSERT_ID({max}(token + 1, {now})),
 owner = $2, client = $3, ttl = $4, delay = $5, note = $6, taken = {now}, expires = {now} + $4
 WHERE name = $1 AND extra = '' AND crowd = 0 AND (owner = '' OR expires + delay <= {now}) AND {life} = $7 AND {now} <= $8 {primary}`

	// Ends such a hold. Its row keeps the token.
	freeColumns = "version = {max}(version + 1, {now}), owner = '', client = '', ttl = 0, delay = 0, note = '', taken = 0, expires = 0"
	plainHold   = "name = $1 AND owner = $2 AND extra = '' AND expires > {now}"
	freeText    = "UPDATE {locks} SET " + freeColumns + " WHERE " + plainHold + " AND crowd = 0"
	// Hands such a hold over to the first place, and tells whether it has. MySQL's variables are the session's, so the
	// first statement sets them in any case. The transaction's snapshot is from after its lock.
	heldMySQL = "SELECT MAX(crowd), NULL, {now} INTO @holdfast_crowd, @holdfast_next, @holdfast_now FROM {locks}" +
		" WHERE name = $1 AND owner = $2 AND extra = '' AND {life} = $4 AND {now} < LEAST(expires, $5) {primary} FOR UPDATE"
	nextMySQL = `SELECT IF(tokens <= 1 AND ends >= @holdfast_now AND owner <> $2 AND JSON_EXTRACT({request}, '$.m') IS NULL AND JSON_EXTRACT({request}, '$.i') IS NULL,
 owner, NULL), JSON_EXTRACT({request}, '$.l'), COALESCE(JSON_EXTRACT({request}, '$.d'), 0), COALESCE(JSON_UNQUOTE(JSON_EXTRACT({request}, '$.n')), ''),
 GREATEST(ends - @holdfast_now, $3 DIV 2) INTO @holdfast_next, @holdfast_ttl, @holdfast_delay, @holdfast_note, @holdfast_claim
 FROM {places} WHERE name = $1 AND @holdfast_crowd = 1 ORDER BY ticket LIMIT 1`
	goneMySQL = "DELETE FROM {places} WHERE name = $1 AND owner = @holdfast_next"
	passMySQL = `UPDATE {locks} SET version = {max}(version + 1, @holdfast_now), token = LAST_INSERT_ID({max}(token + 1, @holdfast_now)), owner = @holdfast_next,
 ttl = @holdfast_ttl, delay = @holdfast_delay, note = @holdfast_note, taken = @holdfast_now, expires = @holdfast_now + LEAST(@holdfast_claim, 2 * $3, ttl)
 WHERE name = $1 AND @holdfast_next IS NOT NULL`
	// The same, and tells that client: see client.messages. The snapshot may be older than the lock: then it may see too
	// few places. A joiner that has the row's key share does not keep it up: if it hands over, others take places as well
	// before as after it, and if it sees no place, a step follows.
	passPostgres = `WITH gone AS (DELETE FROM {places} d USING (SELECT 1 FROM {locks} WHERE ` + plainHold + ` AND crowd = 1
 AND {life} = $4 AND {now} <= $5 FOR NO KEY UPDATE) held
 WHERE d.name = $1 AND d.ticket = (SELECT ticket FROM {places} WHERE name = $1 ORDER BY ticket LIMIT 1) AND d.tokens <= 1 AND d.ends >= {now}
 AND d.owner <> $2 AND d.request::json->>'m' IS NULL AND d.request::json->>'i' IS NULL AND d.request::json->>'c' IS NOT NULL
 RETURNING d.owner, d.ticket, d.asked, d.request::json->>'c' AS client, (d.request::json->>'l')::bigint AS ttl,
 COALESCE((d.request::json->>'d')::bigint, 0) AS delay, COALESCE(d.request::json->>'n', '') AS note,
 LEAST(GREATEST(d.ends - {now}, $3::bigint / 2), 2 * $3::bigint, (d.request::json->>'l')::bigint) AS claim)
 UPDATE {locks} l SET version = {max}(l.version + 1, {now}), token = {max}(l.token + 1, {now}), owner = gone.owner, client = gone.client,
 ttl = gone.ttl, delay = gone.delay, note = gone.note, taken = {now}, expires = {now} + gone.claim FROM gone WHERE l.name = $1 AND l.owner = $2
 RETURNING pg_notify(gone.client, 'h ' || l.token || ' 1 ' || EXISTS (SELECT 1 FROM {places} q WHERE q.name = $1 AND q.ticket > gone.ticket)
 || ' ' || gone.claim || ' ' || gone.asked || ' ' || gone.owner)`

	// The names in use, with their places.
	usedText = "SELECT l.name, {now}, {memory}, l.version, l.token, l.owner, l.client, l.ttl, l.delay, l.note, l.taken, l.expires, l.crowd, l.extra, " +
		placeOrNone + " FROM (SELECT * FROM {locks} WHERE name > $1 AND name >= $2 AND name <= $3" +
		" AND (owner <> '' OR extra <> '' OR crowd <> 0) {primary} ORDER BY name LIMIT $4) l" +
		" LEFT JOIN {places} p ON p.name = l.name ORDER BY l.name, p.ticket"
	// Rows that were not written for long, and whether removeListText removes such a row.
	oldText = "SELECT name, extra = '' AND crowd = 0 AND (owner = '' OR expires + delay <= {now}) FROM {locks}" +
		" WHERE name > $1 AND version < {now} - {forget} ORDER BY name LIMIT $2"
	// A row that was used since the page was read has a newer version.
	removeListText = "DELETE FROM {locks} WHERE name IN ({names}) AND extra = '' AND crowd = 0" +
		" AND (owner = '' OR expires + delay <= {now}) AND version < {now} - {forget}"

	// Each owner has one name, so a list of names and one of owners make pairs.
	renewText = "UPDATE {locks} SET version = {max}(version + 1, {now}), expires = {now} + ttl" +
		" WHERE name IN ({names}) AND owner IN ({owners}) AND extra = '' AND expires > {now} {primary}"
	rowText = "SELECT EXISTS (SELECT 1 FROM {places} p WHERE p.name = $1), " + rowColumns + " FROM {locks} WHERE name = $1 {primary}"
	// How many places come before each of these.
	queuedText = "SELECT p.name, p.owner, (SELECT count(*) FROM {places} q WHERE q.name = p.name AND q.ticket < p.ticket)" +
		" FROM {places} p WHERE p.name IN ({names}) AND p.owner IN ({owners}) {primary}"

	// Waits in MySQL until the owner before one that waits, that of the next lower place or the holder, lets its bell go,
	// and tells whether it has: see bells. NULL: that owner has none, or what it has is not exclusive.
	beforeMySQL = `SET @holdfast_before = COALESCE((SELECT IF(INSTR(request, '"m":'), '', owner) FROM {places} WHERE name = $1
 AND ticket < (SELECT ticket FROM {places} p WHERE p.name = $1 AND p.owner = $2) ORDER BY ticket DESC LIMIT 1),
 (SELECT IF(INSTR(extra, '"m":'), '', owner) FROM {locks} WHERE name = $1), '')`
	hearMySQL  = "SET @holdfast_heard = IF(@holdfast_before IN ('', $2), NULL, GET_LOCK(" + bellMySQL + ", 1))"
	heardMySQL = "SELECT @holdfast_heard, IF(@holdfast_heard = 1, RELEASE_LOCK(" + bellMySQL + "), 0)"
	bellMySQL  = "CONCAT('holdfast-', LEFT(SHA2(CONCAT($3, @holdfast_before), 256), 40))"

	unloggedText  = "SELECT count(*) FROM pg_catalog.pg_class WHERE oid IN (to_regclass($1), to_regclass($2), to_regclass($3)) AND relpersistence = 'u'"
	readMetaText  = "SELECT name, value FROM {meta}"
	writeMetaText = "INSERT {ignore} INTO {meta} (name, value) VALUES ($1, $2) {or ignore}"

	commitMySQL   = "COMMIT AND NO CHAIN NO RELEASE" // whatever completion_type says
	rollbackMySQL = "ROLLBACK AND NO CHAIN NO RELEASE"
	// The server ends the transaction of a client that stops. MySQL's wait_timeout is for idle connections, also
	// those in a transaction.
	stopPostgres = "SELECT set_config('idle_in_transaction_session_timeout', '1000', true)," +
		" set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)"
	stopMySQL     = "SET @holdfast = @@SESSION.wait_timeout, SESSION wait_timeout = 1"
	lockText      = "SELECT 1 FROM {locks} WHERE name = $1 FOR UPDATE"
	restoreMySQL  = "SET SESSION wait_timeout = COALESCE(@holdfast, @@SESSION.wait_timeout)"
	beginPostgres = "BEGIN ISOLATION LEVEL READ COMMITTED"
)

// The statements that differ by more than words. Those of a transaction lock the row by a statement of its own, so
// that what is read after it is read at a later moment: PostgreSQL takes a snapshot for each statement, InnoDB with
// the first plain SELECT.
var (
	takeText     = map[Dialect]string{Postgres: takePostgres, MySQL: takeMySQL}
	startedTexts = map[Dialect][]string{MySQL: {startedMySQL}}
	beginTexts   = map[Dialect][]string{
		Postgres: {beginPostgres, stopPostgres}, MySQL: {stopMySQL, "BEGIN"}, SQLite: {"BEGIN IMMEDIATE"},
	}
	lockTexts     = map[Dialect][]string{Postgres: {lockText}, MySQL: {lockText}}
	commitTexts   = map[Dialect][]string{Postgres: {"COMMIT"}, MySQL: {commitMySQL, restoreMySQL}, SQLite: {"COMMIT"}}
	rollbackTexts = map[Dialect][]string{Postgres: {"ROLLBACK"}, MySQL: {rollbackMySQL, restoreMySQL}, SQLite: {"ROLLBACK"}}
	joinTexts     = map[Dialect][]string{
		Postgres: {joinPostgres}, MySQL: {joinMySQL, joinedText},
	}
	confirmTexts = map[Dialect][]string{
		Postgres: {confirmPostgres}, MySQL: {confirmPlain, joinedText}, SQLite: {confirmPlain, joinedText},
	}
	passTexts = map[Dialect][]string{
		Postgres: {passPostgres}, MySQL: {"BEGIN", heldMySQL, nextMySQL, goneMySQL, passMySQL, commitMySQL},
	}
	hearTexts = map[Dialect][]string{MySQL: {beforeMySQL, hearMySQL, heardMySQL}}
)

func newStatements(d Dialect, prefix string, waits bool) *statements {
	return &statements{dialect: d, prefix: prefix, waits: waits, translated: map[string]string{}}
}

// bound returns a statement with its arguments; one without placeholders gets none. It is translated the first time.
func (s *statements) bound(text string, args ...any) Statement {
	s.mu.Lock()
	own, known := s.translated[text]
	if !known {
		own = words(s.dialect, s.lifeWords(text), s.prefix)
		s.translated[text] = own
	}
	s.mu.Unlock()
	switch {
	case s.dialect == MySQL:
		return Statement{Text: filled(own, args)}
	case !strings.Contains(own, "$1"):
		args = nil
	}
	return Statement{Text: own, Args: args}
}

// all returns the dialect's statements of some texts with their arguments, of which those without placeholders get
// none.
func (s *statements) all(texts map[Dialect][]string, args ...any) (all []Statement) {
	for _, text := range texts[s.dialect] {
		all = append(all, s.bound(text, args...))
	}
	return all
}

// list returns a statement over lists of names and owners. The lists are filled up to a power of
// two with their last items, so there are few different statements.
func (s *statements) list(text string, names, owners []string) Statement {
	size := 1
	for size < len(names) {
		size *= 2
	}
	var args []any
	var places [2][]string
	for n, items := range [][]string{names, owners} {
		for i := 0; i < size && len(items) > 0; i++ {
			args = append(args, items[min(i, len(items)-1)])
			places[n] = append(places[n], "$"+strconv.Itoa(len(args)))
		}
	}
	text = strings.NewReplacer("{names}", strings.Join(places[0], ", "), "{owners}", strings.Join(places[1], ", ")).Replace(text)
	return s.bound(text, args...)
}
