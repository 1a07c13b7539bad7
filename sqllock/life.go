package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
)

// A server that has taken over from another may lack the last commits. The rule of package life keeps it from granting
// what it has forgotten. The store remembers its life in the row 'life' of {meta}, which is replicated with the holds,
// as "LIFE OPENS LONGEST": the server that has that life grants from OPENS on, and no hold outlives LONGEST, both in
// microseconds. A step reads that under the name's lock, and the life that the server has, by {memory}. A statement that
// grants without a step compares the server's life with the one that this client has last read to be open: see opening.
const (
	memoryText = "COALESCE((SELECT value FROM {meta} WHERE name = 'life'), ''), COALESCE({life}, '')"

	// Begins a life. The second column is until when a server without a row can have forgotten something.
	lifeText      = "SELECT {now}, {forgot}, COALESCE({life}, ''), value FROM {meta} WHERE name = 'life' {primary} FOR UPDATE"
	writeLifeText = "UPDATE {meta} SET value = $1 WHERE name = 'life'"
)

// What the dialects write differently. PostgreSQL's life is the timeline: each promotion chooses another one.
//
// A server of MySQL is known by its UUID, one of MariaDB by where it runs. If it does not sync each commit, its life
// ends with its process, too: client.begin notes on each connection when that began.
var lifeGrammars = map[Dialect]*strings.Replacer{
	Postgres: strings.NewReplacer(
		"{life}", timelinePostgres,
		"{forgot}", "CASE WHEN "+timelinePostgres+" = '00000001' THEN 0 ELSE {now} END"),
	MySQL: strings.NewReplacer(
		"{life}", "CONCAT("+serverMySQL+", IF("+syncsMySQL+", '', CONCAT('-', @holdfast_started)))",
		"{forgot}", "CAST(CASE WHEN "+followedMySQL+" THEN {now} WHEN "+syncsMySQL+" THEN 0 ELSE @holdfast_started * 1000000 END AS SIGNED)"),
}

const (
	timelinePostgres = "CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"

	// MySQL runs what is in the first comment only, MariaDB what is in the second.
	serverMySQL   = "LEFT(SHA1(CONCAT_WS(' ', /*!80000 @@server_uuid */ /*M! @@hostname, @@port, @@datadir, @@server_id */)), 16)"
	followedMySQL = "/*!80000 REPLACE(@@GLOBAL.gtid_executed, @@server_uuid, '') LIKE '%-%-%' */ /*M! @@GLOBAL.gtid_slave_pos <> '' */"
	startedMySQL  = "SET @holdfast_started = UNIX_TIMESTAMP() - (SELECT CAST(variable_value AS SIGNED) FROM" +
		" /*!80000 performance_schema.global_status */ /*M! information_schema.global_status */ WHERE variable_name = 'Uptime')"
	syncsMySQL = "@@GLOBAL.innodb_flush_log_at_trx_commit = 1"
)

// unloggedLife are the words where a crash or a promotion empties the tables: the row that is missing then is the life.
var unloggedLife = strings.NewReplacer("{life}", "(SELECT split_part(value, ' ', 1) FROM {meta} WHERE name = 'life')", "{forgot}", "{now}")

// learnUnlogged finds out whether PostgreSQL logs the tables. A crash must not empty some and leave the row of the life (P1).
func (c *client) learnUnlogged(ctx context.Context, want bool) error {
	prefix, n := c.statements.prefix, 0
	ask := c.statements.bound(unloggedText, prefix+"_locks", prefix+"_places", prefix+"_meta")
	ask.Into = []any{&n}
	err := c.run(ctx, ask)
	if c.statements.unlogged = n == 3; err == nil && (n%3 != 0 || want && n == 0) {
		err = fmt.Errorf("%d of the 3 tables %s_* are unlogged: run ALTER TABLE ... SET UNLOGGED, or SET LOGGED, while no program uses them,"+
			" or choose another prefix (hf.tables)", n, prefix)
	}
	return err
}

// lifeWords replaces the words of the rule, which mean nothing if it is not kept.
func (s *statements) lifeWords(text string) string {
	if !s.waits {
		return strings.NewReplacer("{memory}", "'', ''", "{life}", "''").Replace(text)
	}
	words := lifeGrammars[s.dialect]
	if s.unlogged {
		words = unloggedLife
	}
	return words.Replace(strings.ReplaceAll(text, "{memory}", memoryText))
}

// never is when a store opens that has to begin its life.
const never = driver.Instant(math.MaxInt64)

// errUnbegun says that nothing can be granted because the server has another life than the store remembers. The request
// is repeated after client.begin.
var errUnbegun = errors.New("the server has begun another life again and again: a fail-over may be under way")

// parseMemory reads the row 'life'. A row that cannot be read is taken for that of another life.
func parseMemory(text string) (m life.Memory) {
	var opens, wait int64
	if _, err := fmt.Sscan(text, &m.Life, &opens, &wait); err != nil {
		return life.Memory{}
	}
	m.Opens, m.Wait = instant(opens), duration(wait)
	return m
}

// opening is a life that was read to be open, and until when, by the server's clock, statements may rely on that. A
// server that takes over grants nothing for the longest TTL. So if this one serves again after it, the opening is over
// before the other can have granted what this one does not know.
type opening struct {
	life  string
	until int64
}

// opens returns from when on the store grants, as a snapshot shows it.
func (c *client) opens(s *snapshot) driver.Instant {
	if c.rules.MaxTTL == 0 {
		return 0
	}
	m := parseMemory(s.memory)
	left, begun := m.Closed(s.life, instant(s.now))
	if !begun || s.life == "" {
		return never
	}
	if left == 0 {
		c.noteOpen(s.life, s.now)
	}
	return m.Opens
}

func (c *client) noteOpen(life string, now int64) {
	c.opening.Store(&opening{life, now + micros(c.rules.MaxTTL/2)})
}

// begin makes the server begin its life, if it has not, and the store remember this client's longest TTL.
func (c *client) begin(ctx context.Context, conn *sql.Conn) error {
	var now, forgot int64
	var present, text string
	ask := c.statements.bound(lifeText)
	ask.Into = []any{&now, &forgot, &present, &text}
	err := c.together(ctx, conn, slices.Concat(c.statements.all(startedTexts), c.statements.all(beginTexts), []Statement{ask}))
	if errors.Is(err, sql.ErrNoRows) {
		c.rollBack(ctx, conn, errChanged)
		if _, err = c.exec(ctx, conn, c.statements.bound(writeMetaText, "life", "")); err == nil {
			err = errChanged
		}
		return err
	}
	if err == nil {
		if c.statements.unlogged && present == "" {
			present = rand.Text()
		}
		since := now
		if text == "" {
			since = forgot
		}
		m := parseMemory(text).Begin(present, instant(since), instant(now), c.rules)
		write := c.statements.bound(writeLifeText, fmt.Sprintf("%s %d %d", m.Life, serverTime(m.Opens), micros(m.Wait)))
		err = c.together(ctx, conn, append([]Statement{write}, c.statements.all(commitTexts)...))
		if err == nil && m.Opens <= instant(now) {
			c.noteOpen(m.Life, now)
		}
	}
	if err != nil {
		return c.rollBack(ctx, conn, err)
	}
	return nil
}
