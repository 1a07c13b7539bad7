package sqllock

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Dialect is a database's SQL.
type Dialect uint8

// The dialects.
const (
	Postgres Dialect = iota + 1 // PostgreSQL 12 and later
	MySQL                       // MariaDB 10.6 and later, MySQL 8.0 and later; InnoDB tables
	SQLite                      // SQLite 3.35 and later
)

// String returns "postgres", "mysql" or "sqlite".
func (d Dialect) String() string {
	return cmp.Or(grammars[d].name, "unknown dialect")
}

// grammar is what the dialects write differently. Queries are written as for PostgreSQL, with {words} that stand
// for these.
type grammar struct {
	name string
	// now is the time in microseconds since 1970 by the server's clock, read anew at each evaluation: a statement
	// that has waited for a row must not judge by the time at which it began.
	now string
	max string // the greatest of several values
	// ignore and orIgnore make an INSERT do nothing where the name has a row.
	ignore, orIgnore string
	orReplace        string // makes an INSERT change the place that the owner has
	primary          string // fails a statement if the server takes no writes
	forUpdate        string // locks the rows that a statement reads
	found, joined    string // what of the places is read, and how they are joined to it: see readText
}

// hostTime stands for an argument: SQLite runs on the caller's host, whose clock has more digits than SQLite's own.
const hostTime = "$0"

var grammars = map[Dialect]grammar{
	Postgres: {
		name: "postgres", now: "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		max: "greatest", orIgnore: "ON CONFLICT (name) DO NOTHING",
		orReplace: "ON CONFLICT (name, owner) DO UPDATE SET", forUpdate: "FOR UPDATE", found: placeColumns, joined: "p ON 1 = 1",
	},
	MySQL: {
		name: "mysql", now: nowMySQL, max: "GREATEST", ignore: "IGNORE",
		orReplace: "ON DUPLICATE KEY UPDATE", primary: primaryMySQL, forUpdate: "FOR UPDATE",
		found: foundMySQL, joined: joinedMySQL,
	},
	SQLite: {
		name: "sqlite", now: hostTime, max: "max", orIgnore: "ON CONFLICT (name) DO NOTHING",
		orReplace: "ON CONFLICT (name, owner) DO UPDATE SET", found: placeColumns, joined: "p ON 1 = 1",
	},
}

// primaryMySQL adds one to the greatest number if the server is read-only: error 1690. A replica, or a primary that
// was demoted, refuses what is written, and may not know the last holds. Also a user whom it would let write must
// not take locks there.
const primaryMySQL = "AND 18446744073709551615 + (CONCAT(@@read_only) NOT IN ('0', 'OFF')) > 0"

// nowMySQL is live time in MySQL. UTC_TIMESTAMP stands still during a statement. SYSDATE is live, but local time:
// suppose summer time begins while a statement waits for a row. Then SYSDATE is an hour ahead of what has passed
// since NOW, and a hold that lasts for another half hour would seem to have ended (P1). Local clocks are moved by
// whole quarters of an hour, in all zones, and no statement of ours takes half of that. So the remainder of SYSDATE
// − NOW after whole quarters of an hour, within ±7.5 minutes, is the time that has passed. It is kept within 0 and
// 60 s, because the clock must never be ahead. In a statement that waits for longer it is behind, and holds only
// last longer.
const nowMySQL = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))" +
	" + LEAST(GREATEST(MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 864450000000, 900000000) - 450000000, 0), 60000000))"

// Now returns the expression by which the server's time is read, in microseconds since 1970, anew at each
// evaluation. For SQLite it is "": there the host's is taken.
func (d Dialect) Now() string {
	if d == SQLite {
		return ""
	}
	return grammars[d].now
}

// query is one statement in a dialect's own words.
type query struct {
	text string
	// args says for each placeholder which argument it takes, from 1 up; 0 is the host's time. nil: the database
	// takes them by number.
	args []int
	// pieces are the text between the placeholders, where the arguments are written into the text: see literal.
	// nil: they go beside it.
	pieces []string
}

// words replaces the {words} of a statement by the dialect's own.
func (d Dialect) words(text, prefix string) string {
	g := grammars[d]
	text = strings.NewReplacer("{found}", g.found, "{joined}", g.joined).Replace(text)
	return strings.NewReplacer(
		"{now}", g.now, "{max}", g.max, "{ignore}", g.ignore, "{or ignore}", g.orIgnore,
		"{or replace}", g.orReplace, "{primary}", g.primary, "{for update}", g.forUpdate,
		"{request}", "CONVERT(request USING utf8mb4)", "{locks}", prefix+"_locks", "{places}", prefix+"_places", "{meta}", prefix+"_meta",
		"{forget}", strconv.FormatInt(micros(forgetAfter), 10),
	).Replace(text)
}

var placeholder = regexp.MustCompile(`\$[0-9]+`)

// query translates a statement with placeholders $1 to $99.
func (d Dialect) query(text, prefix string) *query {
	text = d.words(text, prefix)
	if d == Postgres {
		return &query{text: text}
	}
	q := &query{args: []int{}}
	var pieces []string
	for at := placeholder.FindStringIndex(text); at != nil; at = placeholder.FindStringIndex(text) {
		n, _ := strconv.Atoi(text[at[0]+1 : at[1]])
		pieces, q.args = append(pieces, text[:at[0]]), append(q.args, n)
		text = text[at[1]:]
	}
	pieces = append(pieces, text)
	q.text = strings.Join(pieces, "?")
	if d == MySQL {
		q.pieces = pieces
	}
	return q
}

// bound returns the statement with its arguments in the order of the placeholders. One without placeholders gets none.
func (q *query) bound(args ...any) Statement {
	switch {
	case q.pieces != nil:
		var b strings.Builder
		for i, n := range q.args {
			b.WriteString(q.pieces[i])
			b.WriteString(literal(args[n-1]))
		}
		b.WriteString(q.pieces[len(q.args)])
		return Statement{Text: b.String()}
	case q.args == nil && strings.Contains(q.text, "$1"):
		return Statement{Text: q.text, Args: args}
	}
	bound := make([]any, 0, len(q.args))
	now := any(nil)
	for _, n := range q.args {
		if n > 0 {
			bound = append(bound, args[n-1])
			continue
		}
		if now == nil {
			now = time.Now().UnixMicro()
		}
		bound = append(bound, now)
	}
	return Statement{Text: q.text, Args: bound}
}

// literal returns an argument as MySQL's SQL, of ASCII letters, digits and quotes only. Text is a number of
// hexadecimal digits there: it reads alike in all character sets that a connection can have. A quoted text does
// not, and may end too early in GBK. Sending arguments beside the statement costs one more round trip.
func literal(arg any) string {
	switch arg := arg.(type) {
	case string:
		return "x'" + hex.EncodeToString([]byte(arg)) + "'"
	case int:
		return strconv.Itoa(arg)
	case int64:
		return strconv.FormatInt(arg, 10)
	}
	panic(fmt.Sprintf("sqllock: an argument of type %T", arg))
}
