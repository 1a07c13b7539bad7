package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

// fileChecks are the checks of a directory of locks.
var fileChecks = []Check{fileDirectory, filePlace, fileRecords}

// fileDirectory asks the store's own check: file system, clock, permissions.
func fileDirectory(_ context.Context, p Patient) []Finding {
	dir := filepath.FromSlash(p.URL.Path)
	severity, risk := Warning, "locks work now, but others may damage them"
	if p.Client == nil { // a problem that breaks locks also prevents the store from being opened
		severity, risk = Error, "locks here would exclude nobody, or cannot be taken"
	}
	return judgeDirectory(dir, filelock.CheckDir(dir), severity, risk)
}

// judgeDirectory returns a finding for each problem of a directory.
func judgeDirectory(dir string, problems []string, severity Severity, risk string) (findings []Finding) {
	for _, problem := range problems {
		findings = append(findings, Finding{
			"directory", severity, problem, risk,
			"use a directory on a local disk that belongs to the user who runs the jobs, with mode 0700, or 0770 and a common group",
		})
	}
	if findings == nil {
		return judge(facts{"dir": dir}, good("directory", "${dir} is on a local file system, and this user may use it"))
	}
	return findings
}

// filePlace checks that the system does not delete the records, as it does with old temporary files.
func filePlace(_ context.Context, p Patient) []Finding {
	f := facts{"dir": filepath.FromSlash(p.URL.Path)}
	if real, err := filepath.EvalSymlinks(f["dir"]); err == nil {
		f["dir"] = real
	}
	for _, place := range []string{"/tmp", "/var/tmp", "/dev/shm", filepath.Clean(os.TempDir())} {
		if strings.HasPrefix(f["dir"]+"/", place+"/") {
			f["swept"] = place
		}
	}
	return judge(f,
		good("place", "${dir} is not where temporary files are deleted", missing("swept")),
		rule{
			"place", Warning, nil, "${dir} is in ${swept}", "old files are deleted there on many systems, and with them the locks",
			"use a directory that lasts, such as /var/lib/holdfast, or the default store",
		})
}

// fileRecords reads all records.
func fileRecords(ctx context.Context, p Patient) []Finding {
	if p.Client == nil {
		return nil // the lock's finding says why
	}
	names := 0
	for _, err := range p.Client.List(ctx, "") {
		if err != nil {
			return []Finding{{
				"records", Error, err.Error(), "the lock of this record can neither be taken nor seen, and those after it are not listed",
				"make sure that nobody runs under that lock, then delete its file",
			}}
		}
		names++
	}
	return []Finding{{Check: "records", Severity: OK, Found: fmt.Sprintf("all records can be read; names in use: %d", names)}}
}

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
