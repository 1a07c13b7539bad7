package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/internal/record"
)

// Version 1 of the tables had the queue of a name in its row, as JSON in a column record, and no
// table of places. Version 2 calls that column extra. So each statement of a program that knows
// version 1 fails from then on, also of one that runs already: neither ever grants a name beside
// the other.

// oldVersion is the version that upgrade takes over.
const oldVersion = "1"

// oldGap is how far a token is raised that is taken over. Suppose that a program of a version before
// the last had the name: it used up to 16 tokens, from that in the row on, without telling (P3).
const oldGap = "16"

// upgradeTexts are what upgrade runs: begin keeps all others out, until the connection ends at the
// latest; alter makes the new form; end lets the others in again.
type upgradeTexts struct{ begin, alter, end []string }

var upgrades = map[Dialect]upgradeTexts{
	Postgres: {
		begin: []string{
			"BEGIN ISOLATION LEVEL READ COMMITTED",
			"SET LOCAL idle_in_transaction_session_timeout = 10000",
			"LOCK TABLE {locks}, {meta} IN ACCESS EXCLUSIVE MODE",
		},
		alter: []string{
			"ALTER TABLE {locks} RENAME COLUMN record TO extra",
			"ALTER TABLE {locks} ADD COLUMN crowd bigint NOT NULL DEFAULT 0",
		},
		end: []string{"COMMIT"},
	},
	MySQL: {
		begin: []string{"SET SESSION wait_timeout = 10", "LOCK TABLES {locks} WRITE, {meta} WRITE"},
		alter: []string{
			"ALTER TABLE {locks} CHANGE COLUMN record extra LONGBLOB NOT NULL, ADD COLUMN crowd BIGINT NOT NULL DEFAULT 0",
		},
		end: []string{"UNLOCK TABLES"},
	},
	SQLite: {
		begin: []string{"BEGIN IMMEDIATE"},
		alter: []string{
			"ALTER TABLE {locks} RENAME COLUMN record TO extra",
			"ALTER TABLE {locks} ADD COLUMN crowd INTEGER NOT NULL DEFAULT 0",
		},
		end: []string{"COMMIT"},
	},
}

const (
	oldVersionText = "SELECT value FROM {meta} WHERE name = 'version'"
	oldRowsText    = "SELECT name, {now}, version, token, owner, client, ttl, delay, note, taken, expires, record" +
		" FROM {locks} WHERE owner <> '' OR record <> ''"
	newFormText  = "SELECT count(extra) FROM {locks} WHERE version < 0"
	takeOverText = "UPDATE {locks} SET token = token + " + oldGap +
		", owner = '', client = '', ttl = 0, delay = 0, note = '', taken = 0, expires = 0, extra = ''"
	newVersionText = "UPDATE {meta} SET value = '" + schemaVersion + "' WHERE name = 'version'"
)

// upgrade makes the tables of version 1 those of this version, while it keeps all others out. Their
// tokens go on. If a name is held it changes nothing and returns an error that says so.
func (c *client) upgrade(ctx context.Context, prefix string) error {
	for _, text := range c.statements.dialect.creation(prefix) { // the table of places
		if err := c.runText(ctx, text); err != nil {
			return fmt.Errorf("the tables are of version %s, and that of places cannot be created: %w", oldVersion, err)
		}
	}
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		return c.withWriterLock(ctx, func(bool) error {
			defer c.discard(conn) // what it has locked or set is gone with it
			return c.takeOver(c.statementContext(ctx), conn)
		})
	})
	if err != nil {
		return fmt.Errorf("the tables are of version %s, and this program could not upgrade them: %w", oldVersion, err)
	}
	return nil
}

func (c *client) takeOver(ctx context.Context, conn *sql.Conn) error {
	texts := upgrades[c.statements.dialect]
	run := func(texts ...string) error {
		for _, text := range texts {
			q := c.statements.query(text)
			text, args := q.bind(nil)
			if _, err := conn.ExecContext(ctx, text, args...); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(texts.begin...); err != nil {
		return err
	}
	var version string
	q := c.statements.query(oldVersionText)
	text, args := q.bind(nil)
	if err := conn.QueryRowContext(ctx, text, args...).Scan(&version); err != nil {
		return err
	}
	if version == schemaVersion {
		return run(texts.end...) // another client was quicker
	}
	// MySQL alters a table at once: suppose that an upgrade was interrupted after that.
	if c.statements.dialect != MySQL || run(newFormText) != nil {
		if err := c.checkIdle(ctx, conn); err != nil {
			return err
		}
		if err := run(texts.alter...); err != nil {
			return err
		}
	}
	if err := run(takeOverText, newVersionText); err != nil {
		return err
	}
	return run(texts.end...)
}

// checkIdle returns an error if the old tables say that a name is held or closed.
func (c *client) checkIdle(ctx context.Context, conn *sql.Conn) error {
	const most = 3
	var held []string
	n := 0
	q := c.statements.query(oldRowsText)
	if err := c.scan(ctx, conn, &q, nil, func(rows *sql.Rows) error {
		var name string
		var s snapshot
		r := &s.row
		if err := rows.Scan(&name, &s.now, &r.version, &r.token, &r.owner, &r.client, &r.ttl, &r.delay, &r.note,
			&r.taken, &r.expires, &r.extra); err != nil {
			return err
		}
		st, err := r.decode(name)
		if err != nil {
			return err
		}
		st.Settle(instant(s.now), &record.Rules{Poll: c.caps.PollInterval(), Last: &st.last})
		if len(st.Holds) == 0 {
			return nil
		}
		if n++; n <= most {
			held = append(held, fmt.Sprintf("%.100q", name))
		}
		return nil
	}); err != nil || n == 0 {
		return err
	}
	if n > most {
		held = append(held, "...")
	}
	return fmt.Errorf("programs of an older version hold %d names (%s): stop those programs, and open the store"+
		" again when their locks are released, or have ended", n, strings.Join(held, ", "))
}

// runText runs a statement without arguments.
func (c *client) runText(ctx context.Context, text string) error {
	_, err := c.request(ctx, reading, func(ctx context.Context, conn *sql.Conn) error {
		return c.withWriterLock(ctx, func(bool) error {
			_, err := conn.ExecContext(ctx, text)
			return err
		})
	})
	return err
}
