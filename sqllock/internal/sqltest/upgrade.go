package sqltest

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// ownerName returns a name that no other owner has.
func ownerName() string { return fmt.Sprintf("owner %x", rand.Uint64()) }

// version1 are the tables and statements of programs that know version 1 of the tables, by
// dialect, for tables with the prefix [OldPrefix].
//
//go:embed testdata/version1.json
var version1 []byte

// OldPrefix is that of the tables of an older version.
const OldPrefix = "old"

// oldProgram is a program that knows version 1 of the tables, and runs.
type oldProgram struct {
	*testing.T
	db         *sql.DB
	conn       *sql.Conn
	Schema     []string
	Statements map[string]struct {
		Text string
		Args []int
	}
	prepared map[string]*sql.Stmt
}

func startOld(t *testing.T, db *sql.DB, dialect sqllock.Dialect) *oldProgram {
	t.Helper()
	programs := map[string]*oldProgram{}
	if err := json.Unmarshal(version1, &programs); err != nil {
		t.Fatal(err)
	}
	p := programs[dialect.String()]
	p.T, p.db, p.prepared = t, db, map[string]*sql.Stmt{}
	for _, text := range append(p.Schema,
		"INSERT INTO old_meta (name, value) VALUES ('version', '1')", "INSERT INTO old_meta (name, value) VALUES ('store', 's')",
		"INSERT INTO old_meta (name, value) VALUES ('poll', '1000000')") {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.conn, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, s := range p.Statements {
		if p.prepared[name], err = p.conn.PrepareContext(t.Context(), s.Text); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// args puts arguments in the order of a statement's placeholders.
func (p *oldProgram) args(name string, args []any) (bound []any) {
	order := p.Statements[name].Args
	if order == nil {
		return args
	}
	for _, n := range order {
		if n == 0 {
			bound = append(bound, time.Now().UnixMicro())
		} else {
			bound = append(bound, args[n-1])
		}
	}
	return bound
}

// query runs a statement that was prepared, or prepares it anew.
func (p *oldProgram) query(ctx context.Context, name string, prepared bool, args ...any) error {
	bound := p.args(name, args)
	var rows *sql.Rows
	var err error
	if prepared {
		rows, err = p.prepared[name].QueryContext(ctx, bound...)
	} else {
		rows, err = p.conn.QueryContext(ctx, p.Statements[name].Text, bound...)
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func (p *oldProgram) must(name string, args ...any) {
	p.Helper()
	if err := p.query(p.Context(), name, true, args...); err != nil {
		p.Fatalf("a program of version 1, %s: %v", name, err)
	}
}

// Upgrade opens a store whose tables are of version 1, while a program runs that knows no other. It
// is refused as long as that holds a name, and the old program fails afterwards: neither is granted
// a name beside the other (P1), and tokens go on (P3). open opens a driver over the tables of
// [OldPrefix] in the database of the pool.
func Upgrade(t *testing.T, db *sql.DB, dialect sqllock.Dialect, open func() (driver.Driver, error)) {
	t.Helper()
	ctx := t.Context()
	old := startOld(t, db, dialect)
	defer old.conn.Close()
	now := time.Now().UnixMicro()
	ahead := now + time.Hour.Microseconds() // tokens that no clock makes grow
	row := func(name, owner string, expires int64, record string) []any {
		return []any{name, now, ahead, owner, "", int64(60_000_000), int64(0), "", now, expires, record}
	}
	const reader = `{"holds":[{"o":"a reader","m":1,"l":60000000,"t":7,"k":%d,"e":%d}],"queue":[{"o":"a waiter","l":60000000,"j":%[1]d,"s":%[1]d}]}`
	old.must("insert", row("idle", "", 0, "")...)
	old.must("insert", row("expired", "someone", now-1, "")...)
	old.must("insert", row("waited", "", 0, fmt.Sprintf(`{"queue":[{"o":"a waiter","l":60000000,"j":%d,"s":%[1]d}]}`, now))...)
	old.must("insert", row("held", "a holder", now+60_000_000, "")...)
	old.must("insert", row("shared", "a reader", now+60_000_000, fmt.Sprintf(reader, now, now+60_000_000))...)
	for _, step := range []struct {
		names []string
		end   func()
	}{
		{[]string{`"held"`, `"shared"`}, func() { old.must("end", "held", "a holder") }},
		{[]string{`"shared"`}, func() { old.must("update", append(row("shared", "", 0, ""), now)...) }},
	} {
		d, err := open()
		if err == nil {
			d.Close()
			t.Fatalf("P1: tables of version 1 with holds on %v were taken over", step.names)
		}
		for _, name := range step.names {
			if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "older version") {
				t.Errorf("%v does not say that an older program holds %s", err, name)
			}
		}
		old.must("read", "held")
		step.end()
	}

	const clients = 8
	drivers := make([]driver.Driver, clients)
	var wg sync.WaitGroup
	for i := range drivers {
		wg.Go(func() {
			var err error
			if drivers[i], err = open(); err != nil {
				t.Errorf("one of %d clients that upgrade together: %v", clients, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	d := drivers[0]
	for _, d := range drivers {
		defer d.Close()
	}
	owners := map[string]string{}
	for _, name := range []string{"idle", "expired", "waited", "held", "shared"} {
		owners[name] = ownerName()
		g, err := d.Try(ctx, driver.Request{Name: name, Owner: owners[name], TTL: time.Minute})
		if err != nil {
			t.Fatalf("P5: a name of the tables of version 1: %v", err)
		}
		if int64(g.Token) <= ahead {
			t.Errorf("P3: token %d follows %d of version 1", g.Token, ahead)
		}
	}
	for name, args := range map[string][]any{
		"read": {"idle"}, "insert": row("new", "x", now, ""), "update": append(row("idle", "x", now, ""), now),
		"take": {"other", "x", "", int64(1), int64(1), ""}, "release": {"idle", owners["idle"]},
		"renew": {"idle", owners["idle"]}, "end": {"idle", owners["idle"]}, "used": {"", "", "z", int64(10)},
	} {
		if old.prepared[name] == nil {
			continue // SQLite has no statement of this kind
		}
		for _, prepared := range []bool{true, false} {
			if err := old.query(ctx, name, prepared, args...); err == nil {
				t.Errorf("P1: %s of a program of version 1 works on the tables of this one; prepared before: %t", name, prepared)
			}
		}
	}
	for name, owner := range owners {
		info, err := d.(driver.Inspector).Inspect(ctx, name)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != owner {
			t.Errorf("P4: a program of version 1 has changed a hold: %+v, %v", info, err)
		}
	}
	var version string
	if err := db.QueryRow("SELECT value FROM old_meta WHERE name = 'version'").Scan(&version); err != nil || version == "1" {
		t.Errorf("P1: the tables say that their version is %q, %v: a program of version 1 that is opened now does not refuse it", version, err)
	}
}
