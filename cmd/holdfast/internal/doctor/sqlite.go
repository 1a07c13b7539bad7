package doctor

import (
	"context"
	"path/filepath"

	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

// sqliteChecks are the checks of a SQLite file.
var sqliteChecks = []Check{
	sqliteDirectory, filePlace,
	databaseCheck(sqllock.SQLite, nil, sqliteconn.OpenPool, learnSQLite, sqliteRules),
}

// sqliteDirectory finds network file systems, on which SQLite's own locks do not work, and directories
// where others can replace the file.
func sqliteDirectory(_ context.Context, p Patient) []Finding {
	dir := filepath.Dir(filepath.FromSlash(p.URL.Path))
	return judgeDirectory(dir, filelock.CheckPlace(dir), Error,
		"locks there may exclude nobody, or others may replace the file with all its locks")
}

// sqliteRules judge the pragmas of a connection, by their names. The driver sets them, but a file may not allow
// that.
var sqliteRules = []rule{
	{
		"journal", Error, is("journal_mode", "off", "memory"), "journal_mode is ${journal_mode}",
		"a process that dies while it writes damages the file, and all locks in it", "PRAGMA journal_mode = WAL",
	},
	good("journal", "journal_mode is ${journal_mode}", is("journal_mode", "wal")),
	{
		"journal", Warning, nil, "journal_mode is ${journal_mode}",
		"readers block writers: a long read delays renewals, and locks may be lost",
		"PRAGMA journal_mode = WAL, while nobody else has the file open",
	},

	{
		"durability", Warning, is("synchronous", "0", "1"), "synchronous is ${synchronous}: commits are not on disk when they are acknowledged",
		forgetsAtCrash, "PRAGMA synchronous = FULL on each connection",
	},
	good("durability", "commits are on disk when they are acknowledged (synchronous is ${synchronous})"),

	{
		"tables", Error, func(f facts) bool { return f["locks"] != "ok" || f["places"] != "ok" || f["meta"] != "ok" },
		"SQLite does not find the tables ${tables} intact: ${locks} ${places} ${meta}", "locks cannot be taken, or are forgotten",
		"make sure that nobody holds a lock, delete the file, and see what damaged it",
	},
	good("tables", "the tables are intact"),
}

// learnSQLite asks for what sqliteRules judge.
func learnSQLite(ctx context.Context, d *database) {
	d.query(ctx, "PRAGMA journal_mode", "journal_mode")
	d.query(ctx, "PRAGMA synchronous", "synchronous")
	for name, table := range map[string]string{"locks": d.locks(), "places": d.places(), "meta": d.meta()} {
		d.query(ctx, "PRAGMA quick_check('"+table+"')", name)
	}
}
