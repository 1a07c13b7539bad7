package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the client of SQLite

	"github.com/holdfastlock/holdfast/driver"
)

// shopPool is how many connections to the database a process has at most.
const shopPool = 8

// openShop opens the database of a URL: postgres://, mysql://, mariadb://, or a file of SQLite (file://).
func openShop(rawURL string) (*shop, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("demo: the database's URL is malformed") // it may hold a password
	}
	w, driverName, source := sqlite, "sqlite", sqliteDSN(u)
	switch u.Scheme { // package servers links the drivers of these two
	case "postgres", "postgresql":
		w, driverName, source = postgres, "pgx", rawURL
	case "mysql", "mariadb":
		w, driverName, source = mySQL, "mysql-url", rawURL
	}
	if !slices.Contains(sql.Drivers(), driverName) {
		return nil, fmt.Errorf("demo: this program has no client of %s://", u.Scheme)
	}
	db, err := sql.Open(driverName, source)
	if err != nil {
		return nil, fmt.Errorf("%s: the client library does not understand the URL", driver.Redact(u))
	}
	db.SetMaxOpenConns(shopPool)
	db.SetMaxIdleConns(shopPool)
	return &shop{db, w, rawURL}, nil
}

// sqliteDSN returns the client library's data source name for a file. Readers and a writer work
// side by side (the write-ahead log), writers wait for each other (the busy timeout), and a
// transaction waits to be the writer when it begins.
//
// After a plain BEGIN, SQLite refuses to write in a transaction whose reads are out of date. Most
// databases, at their default isolation, do not refuse that. The demo reads before the
// transaction, as many applications do, so that all databases behave alike.
func sqliteDSN(u *url.URL) string {
	dsn := *u
	dsn.RawQuery = url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(wal)", "synchronous(normal)"},
		"_txlock": {"immediate"},
	}.Encode()
	return dsn.String()
}

// openDatabase creates a run's database with its tables, and opens it. The function that it
// returns closes and removes it.
func (d *demonstration) openDatabase(ctx context.Context, stock int) (*shop, func() error, error) {
	rawURL, remove, err := d.createDatabase(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	s, err := openShop(rawURL)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("demo: %w", err), remove())
	}
	closeAndRemove := func() error { return errors.Join(s.Close(), remove()) }
	if err := s.create(ctx, stock); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("demo: %w", err), closeAndRemove())
	}
	return s, closeAndRemove, nil
}

// createDatabase creates an empty database for a run, and returns its URL and a function that
// removes it. Where the locks are in a database server, the shop is there too, in a schema of its
// own (MySQL: a database) with a name that nobody else uses.
func (d *demonstration) createDatabase(ctx context.Context) (
	rawURL string, remove func() error, err error,
) {
	u, err := driver.ParseURL(d.Store)
	if err != nil {
		return "", nil, err
	}
	query := u.Query()
	for key := range query {
		if strings.HasPrefix(key, "hf.") { // the client library does not know them
			query.Del(key)
		}
	}
	name := fmt.Sprintf("holdfast_demo_%s_%d", strings.ToLower(d.id), d.runs)
	var create, drop string
	switch u.Scheme {
	case "postgres", "postgresql":
		query.Set("search_path", name)
		create, drop = "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE"
	case "mysql", "mariadb":
		create, drop = "CREATE DATABASE "+name, "DROP DATABASE "+name
	default:
		file := filepath.ToSlash(filepath.Join(d.dir, name+".db"))
		if !strings.HasPrefix(file, "/") { // C:/…
			file = "/" + file
		}
		// It is removed with the demonstration's directory.
		return (&url.URL{Scheme: "file", Path: file}).String(), func() error { return nil }, nil
	}
	u.RawQuery = query.Encode()
	if err := d.execute(ctx, u, create); err != nil {
		return "", nil, fmt.Errorf("the demonstration needs a schema of its own in %s: %w",
			driver.Redact(u), err)
	}
	inside := *u
	if u.Scheme == "mysql" || u.Scheme == "mariadb" {
		inside.Path = "/" + name
	}
	return inside.String(), func() error {
		// The schema is dropped even if the context has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWithin)
		defer cancel()
		if err := d.execute(ctx, u, drop); err != nil {
			return fmt.Errorf("demo: %s is left behind: %w", name, err)
		}
		return nil
	}, nil
}

// dropWithin is the time limit for dropping a run's schema.
const dropWithin = 15 * time.Second

// execute runs one statement on a connection of its own.
func (d *demonstration) execute(ctx context.Context, u *url.URL, statement string) error {
	db, err := openShop(u.String())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
