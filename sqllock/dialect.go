package sqllock

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/sqldialect"
)

// Dialect is a database's SQL. It is the same type in packages txlock, fence and optimistic.
type Dialect = sqldialect.Dialect

// The dialects.
const (
	Postgres = sqldialect.Postgres // PostgreSQL 12 and later
	MySQL    = sqldialect.MySQL    // MariaDB 10.6 and later, MySQL 8.0 and later; InnoDB tables
	SQLite   = sqldialect.SQLite   // SQLite 3.35 and later
)

// dialects are what the dialects write differently. Statements are written as for PostgreSQL, with these {words}
// beside those of Dialect.Words:
//
//	{now}                  the time in microseconds since 1970 by the server's clock, read anew at each evaluation: a
//	                       statement that has waited for a row must not judge by the time at which it began
//	{ignore}, {or ignore}  make an INSERT do nothing where the name has a row
//	{or replace}           makes an INSERT change the place that the owner has
//	{primary}              fails a statement if the server takes no writes
//	{found}, {joined}      what of the places is read, and how they are joined to it: see readText
var dialects = map[Dialect]*strings.Replacer{
	Postgres: strings.NewReplacer("{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		"{ignore}", "", "{or ignore}", "ON CONFLICT (name) DO NOTHING", "{or replace}", "ON CONFLICT (name, owner) DO UPDATE SET",
		"{primary}", "", "{found}", placeColumns, "{joined}", "p ON 1 = 1"),
	MySQL: strings.NewReplacer("{now}", nowMySQL,
		"{ignore}", "IGNORE", "{or ignore}", "", "{or replace}", "ON DUPLICATE KEY UPDATE",
		"{primary}", primaryMySQL, "{found}", "ticket", "{joined}", joinedMySQL),
	SQLite: strings.NewReplacer("{now}", "holdfast_now()",
		"{ignore}", "", "{or ignore}", "ON CONFLICT (name) DO NOTHING", "{or replace}", "ON CONFLICT (name, owner) DO UPDATE SET",
		"{primary}", "", "{found}", placeColumns, "{joined}", "p ON 1 = 1"),
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
// evaluation. That of SQLite is a function which package sqliteconn adds.
func Now(d Dialect) string { return dialects[d].Replace("{now}") }

// words replaces the {words} of a statement.
func words(d Dialect, text, prefix string) string {
	return strings.NewReplacer(
		"{locks}", prefix+"_locks", "{places}", prefix+"_places", "{meta}", prefix+"_meta",
		"{request}", "CONVERT(request USING utf8mb4)", "{forget}", strconv.FormatInt(micros(forgetAfter), 10),
	).Replace(d.Words(dialects[d].Replace(text)))
}

// filled returns a statement of MySQL with its arguments in place of $1 to $99. What else has a $ stays.
func filled(text string, args []any) string {
	var b strings.Builder
	for {
		before, after, more := strings.Cut(text, "$")
		if b.WriteString(before); !more {
			return b.String()
		}
		digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		if n, err := strconv.Atoi(digits); err == nil {
			b.WriteString(literal(args[n-1]))
		} else {
			b.WriteByte('$')
		}
		text = after[len(digits):]
	}
}

// literal returns an argument as MySQL's SQL, of ASCII letters, digits and quotes only. Text is a number of
// hexadecimal digits there: it reads alike in all character sets that a connection can have. A quoted text does
// not, and may end too early in GBK. Sending arguments beside the statement costs one more round trip.
func literal(arg any) string {
	switch arg := arg.(type) {
	case string:
		return "x'" + hex.EncodeToString([]byte(arg)) + "'"
	case int, int64:
		return fmt.Sprint(arg)
	}
	panic(fmt.Sprintf("sqllock: an argument of type %T", arg))
}
