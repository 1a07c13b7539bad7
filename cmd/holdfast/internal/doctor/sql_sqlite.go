package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastlock/holdfast/filelock"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/sqliteconn"
)

// sqliteChecks are the checks of a SQLite file.
var sqliteChecks = append([]Check{sqliteDirectory, filePlace, fileSpace},
	databaseChecks(sqllock.SQLite, nil, sqliteconn.OpenPool, sqlitePragmas, sqliteHealth, sqliteOthers, sqliteLog, databaseAccess, databaseLatency)...)

// sqliteDirectory finds network file systems, on which SQLite's own locks do not work, and directories
// where others can replace the file.
func sqliteDirectory(_ context.Context, p Patient) []Finding {
	dir := filepath.Dir(filepath.FromSlash(p.URL.Path))
	return judgeDirectory(dir, filelock.CheckPlace(dir), Error,
		"locks there may exclude nobody, or others may replace the file with all its locks")
}

// longestBusy is how long SQLite itself may wait for another writer.
const longestBusy = time.Second

// sqlitePragmas checks the settings of connections. The driver sets them, but a file may not allow
// that.
func sqlitePragmas(ctx context.Context, d *database) []Finding {
	var journal string
	var synchronous, busy int
	for pragma, into := range map[string]any{"journal_mode": &journal, "synchronous": &synchronous, "busy_timeout": &busy} {
		if err := d.ask(ctx, "PRAGMA "+pragma, into); err != nil {
			return d.notReadable("journal", pragma, err)
		}
	}
	return []Finding{judgeJournal(journal), judgeSynchronous(synchronous), judgeBusy(time.Duration(busy) * time.Millisecond)}
}

func judgeJournal(mode string) Finding {
	f := Finding{Check: "journal", Severity: OK, Found: "journal_mode is " + mode}
	switch mode {
	case "wal":
	case "off", "memory":
		f.Severity = Error
		f.Risk, f.Remedy = "a process that dies while it writes damages the file, and all "+
			"locks in it", "PRAGMA journal_mode = WAL"
	default:
		f.Severity = Warning
		f.Risk = "readers block writers: a long read delays renewals, and locks may be lost"
		f.Remedy = "PRAGMA journal_mode = WAL, while nobody else has the file open"
	}
	return f
}

func judgeSynchronous(level int) Finding {
	names := []string{"OFF", "NORMAL", "FULL", "EXTRA"}
	f := Finding{Check: "durability", Severity: OK, Found: fmt.Sprintf("synchronous is %d", level)}
	if level >= 0 && level < len(names) {
		f.Found = "synchronous is " + names[level]
	}
	if level < 2 {
		f.Severity = Warning
		f.Risk = "after a crash of the host the locks of the last moments are forgotten: they " +
			"can be taken a second time, with tokens that are no higher"
		f.Remedy = "PRAGMA synchronous = FULL on each connection"
	}
	return f
}

func judgeBusy(timeout time.Duration) Finding {
	f := Finding{Check: "busy timeout", Severity: OK, Found: fmt.Sprintf("busy_timeout is %v", timeout)}
	if timeout > longestBusy {
		f.Severity = Note
		f.Risk = "SQLite waits for another writer at growing intervals and in no order: the " +
			"driver, which tries more often, has to wait for it"
		f.Remedy = "use busy_timeout(10) for locks: see sqliteconn.DSN"
	}
	return f
}

// sqliteHealth has SQLite check the tables.
func sqliteHealth(ctx context.Context, d *database) []Finding {
	const check = "tables"
	var version, said string
	for _, table := range []string{d.locks(), d.places(), d.meta()} {
		if err := d.ask(ctx, "PRAGMA quick_check('"+table+"')", &said); err != nil {
			said = err.Error()
		}
		if said != "ok" {
			return []Finding{{
				Check: check, Severity: Error, Found: table + ": " + said,
				Risk:   "locks cannot be taken, or are forgotten",
				Remedy: "make sure that nobody holds a lock, delete the file, and see what damaged it",
			}}
		}
	}
	d.ask(ctx, "SELECT sqlite_version()", &version)
	return good(check, "the tables are intact (SQLite %s)", version)
}

// sqliteOthers checks whether the file has other tables.
func sqliteOthers(ctx context.Context, d *database) []Finding {
	const check = "neighbours"
	var others int
	if err := d.ask(ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT "+
		"LIKE 'sqlite\\_%' ESCAPE '\\' AND name "+
		"NOT IN ('"+d.locks()+"', '"+d.places()+"', '"+d.meta()+"')", &others); err != nil {
		return d.notReadable(check, "the other tables", err)
	}
	if others == 0 {
		return good(check, "the file contains only locks")
	}
	return []Finding{{
		Check: check, Severity: Note, Found: fmt.Sprintf("other tables in the file: %d", others),
		Risk: "there is one writer at a time: a long transaction on the other tables delays " +
			"renewals, and locks with a short TTL are lost",
		Remedy: "give locks a file of their own, unless such transactions are short",
	}}
}

// sqliteLog checks the size of the write-ahead log.
func sqliteLog(_ context.Context, d *database) []Finding {
	file := filepath.FromSlash(d.URL.Path) + "-wal"
	info, err := os.Stat(file)
	if err != nil {
		return nil // the log exists only while a process has the file open
	}
	return []Finding{judgeLog(file, info.Size())}
}

// muchLog is the size of a log that a reader prevents from being emptied. SQLite starts to empty it at
// 4 MiB.
const muchLog = 64 << 20

func judgeLog(file string, size int64) Finding {
	f := Finding{Check: "log", Severity: OK, Found: fmt.Sprintf("%s has %d kB", file, size>>10)}
	if size > muchLog {
		f.Severity = Warning
		f.Risk = "a reader does not end, so the log cannot be emptied: it grows until the disk " +
			"is full, and locks become slower"
		f.Remedy = "end the long transaction, then PRAGMA wal_checkpoint(TRUNCATE)"
	}
	return f
}
